"""How late tasks begin while many others are pending, and what those cost the worker's memory.

As in lateness.py, with 200,000 others that are due in a day or later (all but peers: also
1,000,000), which are made while the worker is up. Since that takes long, it is done once, and the
1,000 tasks are made and run three times on the same server: each percentile is the median of the
three, except the last, which is the highest. If any task did not run, it is left at that, for it
would run among the next. In a quick run there are 40,000 others, and the tasks run once.
"""

import math
import statistics
from collections.abc import Sequence

from benchmarks.lab import processes
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Stage
from benchmarks.measurements.lateness import run_tasks, tasks_of

WORST = "100"


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.runs_tasks:
        return []
    few = contender.kind == "peer" or scale.is_quick
    repeats = {"repeats": 1 if scale.is_quick else 3}
    return [
        {"pending": scale(others)} | tasks_of(scale, contender.interval) | repeats
        for others in ([200_000] if few else [200_000, 1_000_000])
    ]


def measure(case: Case) -> Figures:
    with Stage(case.contender, case.binary, handler=case.contender.handlers[0]) as stage:
        stage.start()
        stage.rest()
        before = processes.memory(stage.worker_pids)
        filling = stage.fill(case.variant["pending"])
        figures: Figures = {
            "filling_seconds": filling,
            "at_rest": stage.rest(),
            "worker_bytes_before": before,
            "worker_bytes": processes.memory(stage.worker_pids),
        }
        repeats: list[Figures] = []
        while len(repeats) < case.variant["repeats"] and not any(
            repeat["lost"] for repeat in repeats
        ):
            repeats.append(run_tasks(stage, case.variant))
    return figures | _summed_up(repeats)


def _summed_up(repeats: Sequence[Figures]) -> Figures:
    counts = [name for name, value in repeats[0].items() if isinstance(value, int)]
    late: dict[str, float] = {
        percent: statistics.median(repeat["lateness_ms"][percent] for repeat in repeats)
        for percent in repeats[0]["lateness_ms"]
    }
    late[WORST] = max((repeat["lateness_ms"][WORST] for repeat in repeats), default=math.inf)
    return {
        "repeats": len(repeats),
        **{name: sum(repeat[name] for repeat in repeats) for name in counts},
        "lateness_ms": late,
    }


MEASUREMENT = Measurement(
    name="lateness_pending",
    variants=variants,
    measure=measure,
    limit=900,
    rounds=1,
    seconds=110,
    quick=Quick(part=0.2, seconds=28),
)
