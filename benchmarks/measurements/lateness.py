"""How late tasks begin: the handler's first statement minus the due time.

1,000 tasks come due evenly over 10 s, while nothing else is pending, and while 200,000 others are
(ours and the baseline: also 1,000,000). The worker is up before any is made, and server and worker
have come to rest before the 1,000 are made, or `at_rest` says that they did not within two minutes.
A task that has not begun 30 s after the last was due is infinitely late.

With many others pending the rounds follow one another on the same server, because they take long to
make. What the worker's memory has grown by then, is measured too.
"""

from benchmarks.lab import processes, verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Stage

PATIENCE = 30.0
PERCENTS = (0, 1, 2, 5, *range(10, 90, 10), 90, 95, 98, 99, 99.5, 99.9, 100)
"""Enough to draw the distribution."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.runs_tasks:
        return []
    pending = [0, 200_000] if contender.kind == "peer" else [0, 200_000, 1_000_000]
    return [
        {"pending": scale(others), "tasks": scale(1000), "seconds": scale.seconds(10)}
        for others in pending
    ]


def measure(case: Case) -> Figures:
    variant = case.variant
    with Stage(case.contender, case.binary, handler=case.contender.handlers[0]) as stage:
        stage.start()
        stage.rest()
        before = processes.memory(stage.worker_pids)
        filling = stage.fill(variant["pending"])
        figures: Figures = {
            "filling_seconds": filling,
            "at_rest": stage.rest(),
            "worker_bytes_before": before,
            "worker_bytes": processes.memory(stage.worker_pids),
        }
        dues = stage.schedule(variant["tasks"], spread=variant["seconds"])
        runs = stage.wait_for([dues], limit=PATIENCE)
        late = verdict.lateness(dues, runs)
        figures |= vars(stage.verdict([dues], runs))
        figures["lateness_ms"] = {f"{p:g}": verdict.percentile(late, p) for p in PERCENTS}
    return figures


MEASUREMENT = Measurement(name="lateness", variants=variants, measure=measure, limit=900)
