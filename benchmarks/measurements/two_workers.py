"""Ours and the designs: what becomes of tasks when a second worker is started while they wait.

1,000 tasks are made, which come due evenly over 10 s. Then a second worker is started with the same
command, as on another machine or during a deploy, and it is up before the first task is due.
`twice` began more than once, and `lost` had not run 30 s after the last was due.

A design in memory has a second process with a memory of its own; the tasks were made in the first.
"""

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Stage
from benchmarks.lab.verdict import Runs
from benchmarks.measurements.lateness import run_tasks, tasks_of

START = 5.0
"""Seconds from the start of the second worker to the first due time, at least."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind not in {"ours", "baseline", "design"}:
        return []
    return [tasks_of(scale)]


def measure(case: Case) -> Figures:
    with Stage(case.contender, case.binary, handler=case.contender.handlers[0]) as stage:
        stage.start()
        figures = run_tasks(stage, case.variant, lead=2 * START, meanwhile=stage.add)
        figures["workers_that_ran_any"] = len(Runs.read(stage.journal).workers)
    return figures


MEASUREMENT = Measurement(
    name="two_workers",
    variants=variants,
    measure=measure,
    limit=300,
    rounds=1,
    seconds=40,
    quick=Quick(part=0.4, seconds=22),
)
