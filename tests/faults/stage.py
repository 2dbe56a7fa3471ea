"""What every fault test needs: listeners, injections, the wait for the end, verdict and table."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from expirebridge import Bridge, State
from expirebridge.server import Server
from tests.checker import Verdict, check, look_up
from tests.history import Killed, Stopped, Writer, now, read
from tests.processes import listener

ROUNDS = int(os.environ.get("ROUNDS", "1"))
FINISHED_WITHIN = 30.0
"""Seconds that a round's tasks have to end, once the test does no more to them."""


def recorded_listener(
    url: str, folder: Path, history: Writer, *, lease: float
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A listener process whose handlers write into the history."""
    return listener(url, folder, "--lease", f"{lease:g}", HISTORY=str(history.folder))


def kill(process: subprocess.Popen[bytes], history: Writer) -> None:
    """Kill a process, as a crash would, and write it down."""
    at = now()
    process.kill()
    process.wait()
    history.write(Killed(pid=process.pid, at=at, until=now()))


@contextmanager
def held_still(process: subprocess.Popen[bytes], history: Writer) -> Iterator[None]:
    """Stop a process for as long as the block takes, and write it down."""
    at = now()
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        until = now()
        process.send_signal(signal.SIGCONT)
        history.write(Stopped(pid=process.pid, at=at, until=until))


def until_finished(bridge: Bridge) -> None:
    """Wait until no task is pending or running, or the time is over: the checker tells the rest.

    Nobody is told when an outcome is recorded, so this has to ask.
    """
    deadline = time.monotonic() + FINISHED_WITHIN
    counts = bridge.count()
    while counts.pending + counts.running and time.monotonic() < deadline:
        time.sleep(0.05)
        counts = bridge.count()


def judge(test: str, server: Server, bridge: Bridge, history: Writer, *, lease: float) -> Verdict:
    """The verdict over a round; it is also noted for the table."""
    events = read(history.folder)
    verdict = check(events, look_up(bridge, events), lease=lease)
    TABLE.add(server.binary.name, test, verdict)
    return verdict


class Table:
    """The verdicts of all rounds, summed up by server and test."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[str, str], list[Verdict]] = {}

    def add(self, server: str, test: str, verdict: Verdict) -> None:
        self._verdicts.setdefault((server, test), []).append(verdict)

    def lines(self) -> Iterator[str]:
        """The table as text, nothing if there was no round."""
        if not self._verdicts:
            return
        rows = [_COLUMNS, *(_row(*key, found) for key, found in sorted(self._verdicts.items()))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [
                text.ljust(width) if place in _WORDS else text.rjust(width)
                for place, (text, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield "  ".join(cells).rstrip()


_COLUMNS = (
    "server", "test", "rounds", "acknowledged", "succeeded", "failed", "cancelled", "lost", "early",
    "unexplained", "kills that hit", "longest recovery", "longest delay", "twice, and why",
)  # fmt: skip
_WORDS = {0, 1, len(_COLUMNS) - 1}
"""The columns that hold words and not numbers."""


def _row(server: str, test: str, verdicts: list[Verdict]) -> tuple[str, ...]:
    states, twice = Counter[State](), Counter[str]()
    for verdict in verdicts:
        states += verdict.states
        twice += verdict.twice
    recoveries = [ms for verdict in verdicts for ms in verdict.recoveries]
    longest = max((ms for ms in recoveries if ms is not None), default=None)
    numbers = [
        len(verdicts),
        sum(verdict.acknowledged for verdict in verdicts),
        *(states[state] for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED)),
        sum(len(verdict.lost) for verdict in verdicts),
        sum(len(verdict.early) for verdict in verdicts),
        sum(len(verdict.unexplained) for verdict in verdicts),
    ]
    kills = sum(verdict.kills for verdict in verdicts)
    why = ", ".join(f"{count} {reason}" for reason, count in twice.most_common())
    return (
        server,
        test,
        *(f"{number:,}" for number in numbers),
        f"{len(recoveries)} of {kills}",
        f"{longest:,} ms" if longest is not None else "-",
        f"{max(verdict.longest_delay for verdict in verdicts):,} ms",
        f"{sum(twice.values())}: {why}" if twice else "0",
    )


TABLE = Table()
