"""Ours: what it costs to wait, with 1,000,000 tasks pending and none due.

Commands that the server ran, from its INFO, and the parts of a core that server and listener used,
from /proc, over 30 s.
"""

import time

from benchmarks.lab import processes
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Load, Stage

OWN_COMMANDS = 1
"""Ours, between the two looks at the count: the second INFO."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours":
        return []
    return [{"pending": scale(1_000_000), "seconds": scale.seconds(30)}]


def measure(case: Case) -> Figures:
    seconds: float = case.variant["seconds"]
    with Stage(case.contender, case.binary) as stage:
        stage.start()
        stage.fill(case.variant["pending"])
        figures: Figures = {"at_rest": stage.rest()}
        before = stage.info("stats")["total_commands_processed"]
        server, listener = Load(stage.server_pids), Load(stage.worker_pids)
        time.sleep(seconds)
        figures |= {"server_cores": server.cores(), "listener_cores": listener.cores()}
        commands = stage.info("stats")["total_commands_processed"] - before - OWN_COMMANDS
        figures["commands_per_second"] = commands / seconds
        figures["server_bytes"] = int(stage.info("memory")["used_memory"])
        figures["listener_bytes"] = processes.memory(stage.worker_pids)
    return figures


MEASUREMENT = Measurement(name="idle", variants=variants, measure=measure, limit=900, rounds=1)
