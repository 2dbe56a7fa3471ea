"""Ours: one, two and eight listeners share the work of a burst, and tasks that come due one by one.

10,000 tasks that do nothing, all due at one instant; then, as in lateness.py, 1,000 over 10 s.
`shares` are the parts of the burst that each ran. `claims` and `empty_claims` are how often they
looked, and found nothing to take, over `claims_seconds`: the burst and some waiting, in which they
look once a second at least. The listeners' own hooks tell it, in kit/counting_listener.py.
"""

import json
import time

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Stage
from benchmarks.lab.verdict import Runs
from benchmarks.measurements.burst import run_burst
from benchmarks.measurements.lateness import run_tasks, tasks_of

LISTENER = "python -m benchmarks.kit.counting_listener {url} {here}/expirebridge_tasks"


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours":
        return []
    one_by_one = tasks_of(scale)
    return [{"tasks": scale(10_000), "listeners": count, "then": one_by_one} for count in (1, 2, 8)]


def measure(case: Case) -> Figures:
    with Stage(case.contender, case.binary, worker=[LISTENER]) as stage:
        stage.start(copies=case.variant["listeners"])
        stage.wait_until(
            lambda: stage.client.zcard("expirebridge:listeners") == case.variant["listeners"],
            limit=30,
            every=0.2,
        )
        stage.rest()
        before, began = _claims(stage), time.monotonic()
        figures = run_burst(stage, case.variant["tasks"])
        stage.rest()
        after, seconds = _claims(stage), time.monotonic() - began
        workers = Runs.read(stage.journal).workers
        then = run_tasks(stage, case.variant["then"])
    for name in ("lost", "twice", "early"):
        figures[name] += then[name]
    shares = sorted((count / sum(workers.values()) for count in workers.values()), reverse=True)
    return figures | {
        "shares": shares,
        "claims": sum(after.values()) - sum(before.values()),
        "claims_seconds": seconds,
        "empty_claims": after["empty"] - before["empty"],
        "lateness_ms": then["lateness_ms"],
    }


def _claims(stage: Stage) -> dict[str, int]:
    """How often the listeners looked, by what they found, so far."""
    total = {"empty": 0, "full": 0}
    for file in stage.folder.glob("claims-*"):
        for name, count in json.loads(file.read_text()).items():
            total[name] += count
    return total


MEASUREMENT = Measurement(
    name="listeners",
    variants=variants,
    measure=measure,
    limit=400,
    seconds=27,
)
