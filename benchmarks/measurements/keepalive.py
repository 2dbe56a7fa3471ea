"""100,000 timers of 60 s, put off over and over; of contenders whose tasks can be put off.

The producer sends 3,000 keepalives a second for 90 s, 30 at a time, to each timer in turn; but
1,000 of them, here and there, are put off only once and then let go. Those must run 60 s later, and
are measured; of the others none may run (`false_firings`). Ours: a keepalive is an EXPIRE of a
plain client, which knows nothing of expirebridge.

A timer counts from when its keepalive arrives, which is after it was asked for: so the lateness
is at most too high, by the time on the way. `microseconds` is what a keepalive costs
of the processor's time, in the server, the worker and the producer together.
"""

import time
from collections.abc import Sequence

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Load, Stage
from benchmarks.lab.verdict import Runs

PER_BATCH = 30
"""Keepalives in one call."""
LET_GO_EVERY = 100
TO_SPARE = 600.0
PERCENTS = (50, 90, 99, 100)


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.keepalive:
        return []
    timers, seconds = scale(100_000), max(scale.seconds(90), 12.0)
    # At any scale each timer is put off every 33 s of 90, and would run after 60.
    return [
        {"timers": timers, "ttl": round(seconds * 2 / 3), "seconds": seconds,
         "per_second": round(timers * 2.7 / seconds)}
    ]  # fmt: skip


def measure(case: Case) -> Figures:
    variant = case.variant
    ttl: int = variant["ttl"]
    with Stage(case.contender, case.binary) as stage:
        stage.start()
        # With time to spare, until a listener has followed all of that: keepalives shorten it.
        stage.order(variant["timers"], delay=TO_SPARE, bulk=True)
        timers = range(variant["timers"])
        _keep_all(stage, timers, TO_SPARE)
        stage.rest()
        loads = {"server": Load(stage.server_pids), "listener": Load(stage.worker_pids),
                 "producer": Load([stage.producer.process.pid])}  # fmt: skip
        let_go, sent = _put_off(stage, timers, variant)
        used = sum(load.seconds() for load in loads.values())
        figures: Figures = {f"{name}_cores": load.cores() for name, load in loads.items()}
        figures |= {"keepalives": sent, "microseconds": used / sent * 1e6}
        # The last that was let go is due about now; what was kept, not for a quarter of a minute.
        stage.wait_until(lambda: let_go.keys() <= stage.ended(), limit=ttl / 6, every=0.5)
        _keep_all(stage, [number for number in timers if number not in let_go], 3600)
        runs = Runs.read(stage.journal)
    return figures | _judge(let_go, runs)


def _keep_all(stage: Stage, timers: Sequence[int], ttl: float) -> None:
    for at in range(0, len(timers), 1000):
        stage.producer.keep(timers[at : at + 1000], ttl)


def _put_off(stage: Stage, timers: range, variant: Variant) -> tuple[dict[int, float], int]:
    """Put timers off in turn; return when each that was let go is due, and the keepalives sent."""
    let_go: dict[int, float] = {}
    pause = PER_BATCH / variant["per_second"]
    begun = time.monotonic()
    at = batches = sent = 0
    while time.monotonic() < begun + variant["seconds"]:
        batch = timers[at : at + PER_BATCH]
        at = at + PER_BATCH if at + PER_BATCH < len(timers) else 0
        wanted = [number for number in batch if number not in let_go]
        due = time.time() + variant["ttl"]
        stage.producer.keep(wanted, variant["ttl"])
        sent += len(wanted)
        let_go |= {
            number: due for number in batch if number % LET_GO_EVERY == 0 and number not in let_go
        }
        batches += 1
        time.sleep(max(begun + batches * pause - time.monotonic(), 0))
    return let_go, sent


def _judge(let_go: dict[int, float], runs: Runs) -> Figures:
    late = sorted(
        (min(runs.began[number]) - due) * 1000 if number in runs.began else float("inf")
        for number, due in let_go.items()
    )
    return {
        "let_go": len(let_go),
        "lost": sum(1 for number in let_go if number not in runs.ended),
        "twice": sum(1 for times in runs.began.values() if len(times) > 1),
        "false_firings": sum(1 for number in runs.began if number not in let_go),
        "lateness_ms": {f"{p:g}": verdict.percentile(late, p) for p in PERCENTS},
    }


MEASUREMENT = Measurement(
    name="keepalive",
    variants=variants,
    measure=measure,
    limit=400,
    rounds=1,
    seconds=110,
    quick=Quick(part=0.1, seconds=22),
)
