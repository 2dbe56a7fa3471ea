"""How many tasks of 50 ms a worker gets through, which compute, block or wait.

All are due at one instant, and the rate is that of burst.py: tasks / (the last handler's end - the
due time). `computing` is a loop in pure Python that takes 50 ms when nothing else runs; `blocking`
is `time.sleep` in a plain function; `waiting` is `asyncio.sleep` in an async one. On two cores, a
worker that runs two tasks at a time needs 15 s for those that compute, and 50 s for the others.

Ours runs with one and with two workers (`--workers`), in threads and in processes, of which there
are as many as cores, divided by the workers. The peers run with their defaults, which use
all cores: Celery with a process for each core and one task in each; Dramatiq with a process for
each core and eight threads in each, where an async actor occupies a thread while it waits.

The tasks are made when all processes of the worker are up and have nothing to do.
"""

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Stage
from benchmarks.measurements.burst import run_burst

SECONDS = 0.05
TASKS = {"computing": 600, "blocking": 2000, "waiting": 2000}
HANDLERS = {
    "computing": ["plain", "process"], "blocking": ["plain", "process"], "waiting": ["async"]
}  # fmt: skip
"""Where they run. Only ours has processes beside threads; a peer has the one or the other."""
PEERS = {
    "celery_prefork": "celery --app benchmarks.contenders.celery worker --loglevel WARNING",
    "dramatiq": "dramatiq {module}",
}
"""Their commands, with all their defaults."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours" and contender.name not in PEERS:
        return []
    found: list[Variant] = [
        {"kind": kind, "tasks": scale(count), "handler": handler}
        for kind, count in TASKS.items()
        for handler in HANDLERS[kind]
        if handler in contender.handlers or (handler == "process" and contender.kind == "ours")
    ]
    if contender.name in PEERS:
        return found
    return [{**variant, "workers": workers} for variant in found for workers in (1, 2)]


def measure(case: Case) -> Figures:
    variant, name = case.variant, case.contender.name
    count = variant.get("workers", 0)
    with Stage(
        case.contender,
        case.binary,
        handler=variant["handler"],
        work=SECONDS,
        computes=variant["kind"] == "computing",
        worker=[PEERS[name]] if name in PEERS else _with_workers(case.contender, count),
    ) as stage:
        stage.start()
        if count:
            stage.wait_until(
                lambda: stage.client.zcard("expirebridge:listeners") == count, limit=30, every=0.2
            )
        stage.rest()
        return run_burst(stage, variant["tasks"])


def _with_workers(contender: Contender, count: int) -> list[str]:
    return [f"{command} --workers {count}" for command in contender.worker]


MEASUREMENT = Measurement(
    name="cores",
    variants=variants,
    measure=measure,
    limit=400,
    seconds=28,
)
