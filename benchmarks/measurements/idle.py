"""Ours and the designs: what it costs to wait, with 1,000,000 tasks pending and none due.

Commands that the server ran, from its INFO, and the parts of a core that server and listener used,
from /proc, over 30 s, and one more interval of a contender that looks at intervals.

Ours: the making of so many is heard by the listener, and may be followed by a scan of the database,
slow on purpose. That is waited for, five minutes at most; `settled` says whether it came to an end.
"""

import time

from benchmarks.lab import processes
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Load, Stage

OWN_COMMANDS = 1
"""Ours, between the two looks at the count: the second INFO."""


SETTLED = 100
"""Commands a second, with those inside of scripts; a scan takes more."""
SETTLING_LIMIT = {"ours": 300.0}
"""Seconds. Others scan nothing."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind not in {"ours", "baseline", "design"}:
        return []
    seconds = scale.seconds(30) + contender.interval
    return [{"pending": scale(1_000_000), "seconds": seconds}]


def measure(case: Case) -> Figures:
    seconds: float = case.variant["seconds"]
    with Stage(case.contender, case.binary) as stage:
        stage.start()
        stage.fill(case.variant["pending"])
        figures: Figures = {"at_rest": stage.rest(), "settled": _settle(stage)}
        before = _commands(stage)
        server, listener = Load(stage.server_pids), Load(stage.worker_pids)
        time.sleep(seconds)
        figures |= {"server_cores": server.cores(), "listener_cores": listener.cores()}
        commands = _commands(stage) - before - OWN_COMMANDS
        figures["commands_per_second"] = commands / seconds
        figures["server_bytes"] = int(stage.info("memory")["used_memory"])
        figures["listener_bytes"] = processes.memory(stage.worker_pids)
    return figures


def _settle(stage: Stage) -> bool:
    """Wait until few commands are run; say whether it came to that."""
    seen = [_commands(stage)]

    def is_quiet() -> bool:
        seen.append(_commands(stage))
        return seen[-1] - seen[-2] < SETTLED

    time.sleep(1.0)
    return stage.wait_until(
        is_quiet, limit=SETTLING_LIMIT.get(stage.contender.kind, 0.0), every=1.0
    )


def _commands(stage: Stage) -> int:
    """The commands that the server has run."""
    return int(stage.info("stats")["total_commands_processed"])


MEASUREMENT = Measurement(
    name="idle",
    variants=variants,
    measure=measure,
    limit=900,
    rounds=1,
    seconds=100,
    quick=Quick(part=0.1, seconds=18),
)
