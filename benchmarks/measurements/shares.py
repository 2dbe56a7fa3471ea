"""Ours: how one, two and eight listeners divide tasks that last.

20 tasks of 0.25 s of computing, all due at one instant, in threads: `seconds` from the due time to
the last end, and `shares`, how many each listener ran. Then, on a server of their own and as in
lateness.py, 1,000 tasks over 10 s that wait for 50 ms each, so that about five run at a time.
"""

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Stage
from benchmarks.lab.verdict import Runs
from benchmarks.measurements.burst import run_burst
from benchmarks.measurements.lateness import run_tasks, tasks_of

COMPUTING, WAITING = 0.25, 0.05


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours":
        return []
    one_by_one = tasks_of(scale)
    return [{"tasks": 20, "listeners": count, "then": one_by_one} for count in (1, 2, 8)]


def measure(case: Case) -> Figures:
    listeners = case.variant["listeners"]
    with Stage(
        case.contender, case.binary, handler="plain", work=COMPUTING, computes=True
    ) as stage:
        _start(stage, listeners)
        figures = run_burst(stage, case.variant["tasks"])
        workers = Runs.read(stage.journal).workers
    with Stage(case.contender, case.binary, work=WAITING) as stage:
        _start(stage, listeners)
        then = run_tasks(stage, case.variant["then"])
    for name in ("lost", "twice", "early"):
        figures[name] += then[name]
    return figures | {
        "shares": sorted(workers.values(), reverse=True),
        "lateness_ms": then["lateness_ms"],
    }


def _start(stage: Stage, listeners: int) -> None:
    stage.start(copies=listeners)
    stage.wait_until(
        lambda: stage.client.zcard("expirebridge:listeners") == listeners, limit=30, every=0.2
    )
    stage.rest()


MEASUREMENT = Measurement(
    name="shares",
    variants=variants,
    measure=measure,
    limit=400,
    seconds=40,
)
