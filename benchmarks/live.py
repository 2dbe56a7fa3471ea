"""`make designs`: the designs side by side, live, with the same 20 tasks.

Each design has a server, a producer and a worker of its own, as in the laboratory; but all of them
run at the same time, so this is a show and not a measurement. A bar is one task, and its height is
how late the task began. Those whose interval is longer than a second are left out.
"""

import math
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from benchmarks.lab.contender import Contender, find_contenders
from benchmarks.lab.stage import Stage, now_ms
from benchmarks.lab.verdict import Dues, Runs
from expirebridge.embedded.server import embedded_binary

TASKS, SECONDS = 20, 9
LEAD = 3.0
"""Seconds from the making of the tasks to the first due time, at least."""
PATIENCE = 10.0
"""Seconds after the last due time in which a task may still begin."""
BARS = "▁▂▃▄▅▆▇█"
LOWEST, HIGHEST = 1.0, 1000.0
"""Lateness in ms that has the lowest and the highest bar; the scale is logarithmic."""
COLOURS = ((20.0, "green"), (250.0, "yellow"), (math.inf, "red"))
"""Of bars up to a lateness."""


@dataclass
class Lane:
    """One design, and what became of its tasks so far."""

    title: str
    stage: Stage
    dues: Dues

    def lateness(self) -> list[float | None]:
        """By how many ms each task began late; None for one that has not begun."""
        began = Runs.read(self.stage.journal).began
        return [
            (min(began[number]) - self.dues.due(number)) * 1000 if number in began else None
            for number in self.dues.numbers
        ]

    def is_over(self) -> bool:
        """Whether all have begun."""
        return None not in self.lateness()


def main() -> int:
    """Show them; 1 if a design left tasks out."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console()
    shown = [found for found in find_contenders().values() if _is_shown(found)]
    with ExitStack() as stack:
        console.print(f"starting {len(shown)} designs, each with a server of its own ...")
        lanes = start(shown, stack)
        end = lanes[0].dues.last + PATIENCE
        with Live(draw(lanes), console=console, refresh_per_second=10) as live:
            while time.time() < end and not all(lane.is_over() for lane in lanes):
                time.sleep(0.1)
                live.update(draw(lanes))
            live.update(draw(lanes))
        console.print()
        return 0 if all(lane.is_over() for lane in lanes) else 1


def _is_shown(contender: Contender) -> bool:
    """Whether it fires tasks within seconds, and needs no server of databases for that."""
    kinds = {"ours", "baseline", "design"}
    return contender.kind in kinds and contender.interval <= 1 and not contender.databases


def start(contenders: Sequence[Contender], stack: ExitStack) -> list[Lane]:
    """Start all, and give each the same tasks."""
    binary = embedded_binary()
    stages = [
        stack.enter_context(Stage(one, binary, handler=one.handlers[0])) for one in contenders
    ]
    with ThreadPoolExecutor(len(stages)) as pool:
        list(pool.map(Stage.start, stages))
        dues = Dues(0, TASKS, now_ms() + round(LEAD * 1000), SECONDS * 1000)
        list(pool.map(lambda stage: stage.producer.order(dues), stages))
    return [Lane(one.title, stage, dues) for one, stage in zip(contenders, stages, strict=True)]


def draw(lanes: Sequence[Lane]) -> Table:
    """The table as it is now."""
    dues = lanes[0].dues
    caption = f"{TASKS} tasks, one each {SECONDS / TASKS:g} s; ▁ 1 ms late, ▄ 30 ms, █ 1 s or more"
    table = Table(caption=caption, title=f"due so far: {_due_so_far(dues)} of {TASKS}")
    table.add_column("design")
    table.add_column("each task", min_width=TASKS)
    for name in ("median", "worst", "began"):
        table.add_column(name, justify="right")
    for lane in lanes:
        late = lane.lateness()
        begun = [one for one in late if one is not None]
        table.add_row(
            lane.title,
            Text.assemble(*(bar(one) for one in late)),
            words(statistics.median(begun)) if begun else "",
            words(max(begun)) if begun else "",
            f"{len(begun)} of {TASKS}",
        )
    return table


def _due_so_far(dues: Dues) -> int:
    return sum(1 for number in dues.numbers if dues.due(number) <= time.time())


def words(late: float) -> str:
    """A lateness in ms, in at most seven characters: the table fits a terminal of 80."""
    return f"{late:.1f} ms" if late < 100 else f"{late / 1000:.2f} s"


def bar(late: float | None) -> tuple[str, str]:
    """A character and its colour for a lateness in ms."""
    if late is None:
        return "·", "dim"
    part = math.log(max(late, LOWEST) / LOWEST) / math.log(HIGHEST / LOWEST)
    colour = next(colour for limit, colour in COLOURS if late <= limit)
    return BARS[min(int(part * len(BARS)), len(BARS) - 1)], colour


if __name__ == "__main__":
    sys.exit(main())
