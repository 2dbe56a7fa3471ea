"""What it costs to wait, with a ledger and without: nothing is pending, and nothing is due.

A worker has run one task, and 10 s have passed; then for 30 s the statements that PostgreSQL gets
are counted, with those that begin and end transactions, and the commands of Redis, with those
inside of scripts; and the parts of a core that database, server and worker use. Ours is measured
with one partition and with 16, with a ledger and without.
"""

import time

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Load, Stage
from expirebridge import Bridge

STARTING = 10.0


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    base = {"seconds": scale.seconds(30), "starting": scale.seconds(STARTING)}
    if contender.kind == "ours":
        return [base | {"partitions": partitions} for partitions in (1, 16)]
    return [base] if contender.databases else []


def measure(case: Case) -> Figures:
    variant, contender = case.variant, case.contender
    with Stage(contender, case.binary, handler=contender.handlers[0]) as stage:
        if variant.get("partitions", 1) > 1:
            with Bridge(stage.server.url) as bridge:
                bridge.create_partitions(variant["partitions"])
        stage.start()
        stage.kill_producer()
        time.sleep(variant["starting"])
        pids = {"server": stage.server_pids, "worker": stage.worker_pids}
        if contender.databases:
            pids["database"] = stage.database.pids
        loads = {name: Load(own) for name, own in pids.items()}
        before = _counts(stage)
        time.sleep(variant["seconds"])
        figures: Figures = {f"{name}_cores": load.cores() for name, load in loads.items()}
        for name, count in _counts(stage).items():
            # Less the first look at the count.
            figures[f"{name}_per_second"] = (count - before[name] - 1) / variant["seconds"]
        return figures


def _counts(stage: Stage) -> dict[str, int]:
    """What server and database were sent so far."""
    counts = {"commands": int(stage.info("stats")["total_commands_processed"])}
    if stage.contender.databases:
        counts["statements"] = stage.database.statements()
    return counts


MEASUREMENT = Measurement(
    name="ledger_idle",
    variants=variants,
    measure=measure,
    limit=180,
    rounds=1,
    seconds=45,
)
