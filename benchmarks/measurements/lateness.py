"""How late tasks begin: the handler's first statement minus the due time.

1,000 tasks come due evenly over 10 s, and nothing else is pending (with others: see
lateness_pending.py). The worker is up before any is made, and server and worker have come to rest,
or `at_rest` says that they did not within two minutes. For a contender that looks once a minute,
the tasks come due over a minute, or all of them would be as late as the first. A task that has not
begun 30 s after the last was due, and the interval of a contender that has one, is infinitely late.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import LEAD, Stage

PATIENCE = 30.0
PERCENTS = (0, 1, 2, 5, *range(10, 90, 10), 90, 95, 98, 99, 99.5, 99.9, 100)
"""Enough to draw the distribution."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    return [{"pending": 0} | tasks_of(scale, contender.interval)] if contender.runs_tasks else []


def tasks_of(scale: Scale, interval: float = 0.0) -> dict[str, Any]:
    """The tasks whose lateness is measured: they come due over an interval at least."""
    return {"tasks": scale(1000), "seconds": max(scale.seconds(10), interval)}


def measure(case: Case) -> Figures:
    with Stage(case.contender, case.binary, handler=case.contender.handlers[0]) as stage:
        stage.start()
        return {"at_rest": stage.rest()} | run_tasks(stage, case.variant)


def run_tasks(
    stage: Stage,
    variant: Variant,
    *,
    lead: float = LEAD,
    meanwhile: Callable[[], None] = lambda: None,
) -> Figures:
    """Have the tasks run once, and return how late they were.

    `meanwhile` is done when they are made; most of `lead` is left then until the first is due.
    """
    dues = stage.schedule(variant["tasks"], spread=variant["seconds"], lead=lead)
    meanwhile()
    runs = stage.wait_for([dues], limit=PATIENCE + stage.contender.interval)
    late = verdict.lateness(dues, runs)
    figures: Figures = vars(stage.verdict([dues], runs)).copy()
    figures["lateness_ms"] = {f"{p:g}": verdict.percentile(late, p) for p in PERCENTS}
    return figures


MEASUREMENT = Measurement(
    name="lateness",
    variants=variants,
    measure=measure,
    limit=400,
    seconds=20,
    quick=Quick(part=0.4, seconds=14, longest_interval=60),
)
