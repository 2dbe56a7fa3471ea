"""How many tasks one producer makes in a second: one call each, and in bulk where there is such.

Nobody runs tasks meanwhile. The calls follow one another, as in one request of a web application;
in bulk, 1,000 tasks are given at a time.
"""

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Load, Stage

WARM = 200
AN_HOUR = 3600


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    return [] if contender.kind == "baseline" else [{"tasks": scale(10_000)}]


def measure(case: Case) -> Figures:
    count: int = case.variant["tasks"]
    figures: Figures = {}
    with Stage(case.contender, case.binary) as stage:
        for bulk in (False, True)[: 1 + stage.producer.bulk]:
            stage.order(WARM, delay=AN_HOUR, bulk=bulk)
            load = Load(stage.server_pids)
            seconds = stage.order(count, delay=AN_HOUR, bulk=bulk)
            name = "bulk" if bulk else "single"
            figures[f"{name}_per_second"] = count / seconds
            figures[f"{name}_server_cores"] = load.cores()
    return figures


MEASUREMENT = Measurement(
    name="schedule_rate",
    variants=variants,
    measure=measure,
    limit=180,
    seconds=5,
    quick=Quick(part=0.3, seconds=3),
)
