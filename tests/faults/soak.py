"""Tasks for many minutes, and one fault after another meanwhile: `make soak MINUTES=15`.

A server that syncs each write, three listeners, a customer, and chaos. The time is cut into
stretches: at the end of each the customer stops, every task must come to its end, and the history
is held against what the product says. So memory stays bounded however long it takes.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from expirebridge import Bridge, State
from expirebridge.cli.output import print_line
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.chaos import Chaos
from tests.faults.customer import Customer
from tests.faults.stage import Listeners, copy_handlers, until_finished
from tests.kit.checker import Verdict, check, look_up
from tests.kit.history import Cancelled, PutOff, Started, Writer, read
from tests.kit.patience import PATIENCE
from tests.kit.servers import EMBEDDED, SERVERS

STRETCH = 300.0
"""Seconds that one stretch takes at most: some 30,000 tasks."""
LISTENERS = 3
LEASE = 2.0
RATE = 100.0
"""Tasks that are made in a second."""
FURTHEST = 10.0
"""Seconds within which tasks are due."""
"""Seconds in which all tasks come to their end, once there are no faults any more."""


@dataclass(kw_only=True, slots=True)
class Total:
    """What all stretches came to."""

    verdicts: list[Verdict] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """How often the customer changed its mind, handlers began, and each fault was injected."""

    @property
    def sound(self) -> bool:
        """Whether every promise was kept."""
        return all(verdict.sound for verdict in self.verdicts)

    def lines(self) -> Iterator[str]:
        """The figures, one a line; then what was wrong."""
        states, twice = Counter[State](), Counter[str]()
        for verdict in self.verdicts:
            states += verdict.states
            twice += verdict.twice
        made = sum(verdict.acknowledged for verdict in self.verdicts)
        planned = twice.pop("retry", 0)
        why = ", ".join(f"{count:,} {reason}" for reason, count in twice.most_common())
        recoveries = [ms for verdict in self.verdicts for ms in verdict.recoveries]
        kills = sum(verdict.kills for verdict in self.verdicts)
        figures: dict[str, object] = {
            "made": f"{made:,}",
            "run": f"{self.counts.pop('run', 0):,}, {planned:,} of them as planned retries",
            "lost": sum(len(verdict.lost) for verdict in self.verdicts),
            "early": sum(len(verdict.early) for verdict in self.verdicts),
            "unexplained": sum(len(verdict.unexplained) for verdict in self.verdicts),
            "duplicated": f"{twice.total():,}" + (f": {why}" if why else ""),
            "failed": f"{states[State.FAILED]:,}, each with its reason",
            "kills that hit": f"{len(recoveries)} of {kills}",
            "longest recovery": f"{max((ms for ms in recoveries if ms), default=0):,} ms",
            "longest delay": f"{max(v.longest_delay for v in self.verdicts):,} ms",
        } | {name: f"{count:,}" for name, count in sorted(self.counts.items())}
        width = max(map(len, figures))
        for name, figure in figures.items():
            yield f"{name:<{width}}  {figure}"
        for verdict in self.verdicts:
            if not verdict.sound:
                yield str(verdict)


def soak(
    folder: Path, binary: Path, *, seconds: float, rate: float = RATE, furthest: float = FURTHEST
) -> Total:
    """Run for so long, stretch after stretch; what it writes is in `folder`."""
    total = Total()
    tasks = copy_handlers(folder / "tasks")
    end = time.monotonic() + seconds
    options = {"appendfsync": "always"}
    with EmbeddedServer(binary=binary, directory=folder / "data", options=options) as server:
        while (left := end - time.monotonic()) > 0:
            length = min(left, STRETCH)
            history = Writer(folder / "history")
            verdict = _stretch(server, tasks, history, total, length, rate, furthest)
            history.close()
            total.verdicts.append(verdict)
            if not verdict.sound:
                return total
            shutil.rmtree(history.folder)
    return total


def _stretch(
    server: EmbeddedServer,
    tasks: Path,
    history: Writer,
    total: Total,
    length: float,
    rate: float,
    furthest: float,
) -> Verdict:
    chance = random.Random()  # noqa: S311 - another run, other faults
    with (
        Bridge(server.url) as bridge,
        Listeners(server.url, tasks, history, lease=LEASE) as listeners,
    ):
        chaos = Chaos(
            server,
            history,
            listeners.start,
            listeners=LISTENERS,
            lease=LEASE,
            chance=chance,
        )
        with Customer(server.url, history, rate=rate, furthest=furthest, chance=chance):
            chaos.reign(length)
        until_finished(bridge, within=PATIENCE)
        events = read(history.folder)
        # More succeed than are kept.
        verdict = check(events, look_up(bridge, events), lease=LEASE, may_forget=True)
    total.counts += chaos.counts
    for name, kind in (("run", Started), ("cancelled", Cancelled), ("put off", PutOff)):
        total.counts[name] += sum(isinstance(event, kind) for event in events)
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--server", choices=list(SERVERS), default=EMBEDDED)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="expirebridge-soak-"))
    print_line(f"{given.minutes:g} min on {given.server}, {LISTENERS} listeners, lease {LEASE:g} s")
    total = soak(folder, SERVERS[given.server], seconds=given.minutes * 60)
    for line in total.lines():
        print_line(line)
    if not total.sound:
        print_line(f"the history, the listeners' log and the server's data are in {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
