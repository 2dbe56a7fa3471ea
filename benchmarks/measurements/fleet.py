"""Ours: how long a claim holds the server while the fleet runs one, two and eight codes.

With 1,000,000 tasks pending, ten tasks that the listener knows become due, are claimed by one
script, and are settled, again and again; and as often a claim finds nothing due. Then the 1,000,000
are overdue and another listener's, and one pass walks over all of them. Of the scripts that claim:
the 50th and 99th percentile and the maximum in microseconds, as the server's SLOWLOG has them; of
the pass also its scripts, seconds and the tasks that it left.
"""

import time
from collections.abc import Iterable

import redis

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.script_loader import load
from expirebridge.task.calls import claiming, fleet
from expirebridge.task.calls.call import Command, new_nonce
from expirebridge.task.calls.claiming import Claim, Walk

KEPT = 100_000
PERCENTS = (50, 99, 100)
LEASE = 3600.0
AT_ONCE = 10
FRONT, END = b"-inf", b"+inf"


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours":
        return []
    pending, claims = scale(1_000_000), scale(1000)
    return [
        *({"pending": pending, "claims": claims, "codes": codes} for codes in (1, 2, 8)),
        {"overdue": pending, "codes": 2},
    ]


def measure(case: Case) -> Figures:
    variant = case.variant
    with (
        EmbeddedServer(binary=case.binary) as server,
        redis.Redis.from_url(server.url) as client,
        Bridge(server.url) as bridge,
    ):
        store = Store(client, prefix="expirebridge")
        for code in range(variant["codes"]):
            _join(store, f"{code:016x}", "mail.send" if code == 0 else f"other.kind_{code}")
        if "overdue" in variant:
            bridge.make_tasks(_tasks(variant["overdue"], "other.kind_1", delay=0))
            return _walk_over_all(store, client)
        bridge.make_tasks(_tasks(variant["pending"], "mail.send", delay=86_400))
        figures: Figures = {}
        for name, due in (("none", 0), ("ten", AT_ONCE)):
            figures[name] = _claim_often(
                store, client, bridge, due=due, times=variant["claims"], codes=variant["codes"]
            )
        return figures


def _join(store: Store, code: str, func: str) -> None:
    store.run(fleet.declare(code, {func: "(a, b)"}))
    store.run(claiming.heartbeat(f"listener of {code}", LEASE, [], code=code, functions=1))


def _tasks(count: int, func: str, *, delay: float) -> Iterable[dict[str, object]]:
    return ({"func": func, "args": [42, "hi"], "delay": delay} for _ in range(count))


def _claim(walk: Walk, codes: int) -> Command[Claim]:
    nonce, settings = new_nonce(), Settings()
    if codes == 1:
        return claiming.claim(nonce, settings, places=50, idle=True, fingerprint=f"{0:016x}")
    return claiming.claim_known(
        nonce, settings, places=50, idle=True, code=f"{0:016x}", walks=[walk]
    )


def _claim_often(
    store: Store, client: redis.Redis, bridge: Bridge, *, due: int, times: int, codes: int
) -> Figures:
    seconds, _ = client.time()
    walk = Walk(b"%d" % (int(seconds) * 1000), b"", END)
    _log_scripts(client)
    taken = 0
    for _ in range(times):
        if due:
            bridge.make_tasks(_tasks(due, "mail.send", delay=0))
        claim = store.run(_claim(walk, codes))
        taken += len(claim.tasks)
        if claim.walked:
            walk = walk._replace(score=claim.walked[0].score, id=claim.walked[0].id)
        done = [claiming.Settlement(task.id, task.token, "succeeded") for task in claim.tasks]
        store.run(claiming.settle(done, Settings(), fingerprint=f"{0:016x}"))
    if taken != due * times:
        raise ValueError(f"{taken} tasks were claimed of {due * times}")
    return _times(client, "claim" if codes == 1 else "claim_known")


def _walk_over_all(store: Store, client: redis.Redis) -> Figures:
    _log_scripts(client)
    walk, began = Walk(FRONT, b"", END), time.monotonic()
    scripts, left, finished = 0, 0, False
    while not finished:
        [walked] = store.run(_claim(walk, codes=2)).walked
        walk = walk._replace(score=walked.score, id=walked.id)
        scripts, left, finished = scripts + 1, left + walked.left, walked.finished
    took = time.monotonic() - began
    return _times(client, "claim_known") | {"scripts": scripts, "seconds": took, "left": left}


def _log_scripts(client: redis.Redis) -> None:
    client.config_set("slowlog-max-len", KEPT)
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()


def _times(client: redis.Redis, name: str) -> Figures:
    sha = load(name).headed.sha.encode()
    taken = sorted(
        entry["duration"] for entry in client.slowlog_get(KEPT) if sha in entry["command"]
    )
    return {f"{p:g}": verdict.percentile(taken, p) for p in PERCENTS}


MEASUREMENT = Measurement(
    name="fleet",
    variants=variants,
    measure=measure,
    limit=900,
    rounds=1,
    seconds=300,
)
