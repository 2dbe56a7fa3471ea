"""Ours: 100,000 timers of 60 s, put off over and over by a plain EXPIRE.

A plain client, which knows nothing of expirebridge, sends 3,000 EXPIRE a second for 90 s, to each
timer in turn; but 1,000 of them, here and there, are put off only once and then let go. Those must
run 60 s later, and are measured; of the others none may run (`false_firings`).

The server counts from when it gets the EXPIRE, which is after it was sent: so the lateness that is
told is at most too high, by the time on the way.
"""

import time
from collections.abc import Iterator

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Load, Stage
from benchmarks.lab.verdict import Runs

PER_BATCH = 30
"""EXPIREs in one pipeline."""
LET_GO_EVERY = 100
PERCENTS = (50, 90, 99, 100)


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours":
        return []
    timers, seconds = scale(100_000), max(scale.seconds(90), 6.0)
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
        # Made with time to spare, and then set to run by the plain client alone.
        stage.order(variant["timers"], delay=600, bulk=True)
        keys = sorted(_timers(stage))
        for at in range(0, len(keys), 1000):
            _expire(stage, [key for _, key in keys[at : at + 1000]], ttl)
        stage.rest()  # until the listener has followed all of that
        server, listener = Load(stage.server_pids), Load(stage.worker_pids)
        let_go = _put_off(stage, keys, variant)
        figures: Figures = {"server_cores": server.cores(), "listener_cores": listener.cores()}
        # The last that was let go is due about now; what was kept, not for a quarter of a minute.
        stage.wait_until(lambda: let_go.keys() <= stage.ended(), limit=ttl / 6, every=0.5)
        kept = [key for number, key in keys if number not in let_go]
        for at in range(0, len(kept), 1000):
            _expire(stage, kept[at : at + 1000], 3600)
        runs = Runs.read(stage.journal)
    return figures | _judge(let_go, runs)


def _timers(stage: Stage) -> Iterator[tuple[int, bytes]]:
    """The timers that are pending: each task's number and its key."""
    for key in stage.client.scan_iter(match="*:[?]mail.send[?]*", count=10_000):
        yield int(key.rpartition(b"?[")[2].partition(b",")[0]), key


def _put_off(stage: Stage, keys: list[tuple[int, bytes]], variant: Variant) -> dict[int, float]:
    """Put timers off in turn; return when each of those that were let go is due."""
    let_go: dict[int, float] = {}
    pause = PER_BATCH / variant["per_second"]
    begun = time.monotonic()
    at = batches = 0
    while time.monotonic() < begun + variant["seconds"]:
        batch = keys[at : at + PER_BATCH]
        at = at + PER_BATCH if at + PER_BATCH < len(keys) else 0
        wanted = [key for number, key in batch if number not in let_go]
        due = time.time() + variant["ttl"]
        _expire(stage, wanted, variant["ttl"])
        let_go |= {
            number: due
            for number, _ in batch
            if number % LET_GO_EVERY == 0 and number not in let_go
        }
        batches += 1
        time.sleep(max(begun + batches * pause - time.monotonic(), 0))
    return let_go


def _expire(stage: Stage, keys: list[bytes], ttl: int) -> None:
    pipeline = stage.client.pipeline(transaction=False)
    for key in keys:
        pipeline.expire(key, ttl)
    pipeline.execute()


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


MEASUREMENT = Measurement(name="keepalive", variants=variants, measure=measure, limit=400, rounds=1)
