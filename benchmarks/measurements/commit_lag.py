"""How long it takes from a commit until its task begins, and until its row knows how it ended.

1,000 transactions over 10 s, each with a row of the application and a task that is due at once:
PostgreSQL with its defaults, so each commit waits for the disk. `begin_ms` is from the end of the
commit to the handler's first statement. Ours: `row_ms` is from the handler's end until its row says
so, by the database's clock, in whole ms; and of 1,000 more, due in three days, `server_ms` is from
the end of the commit until Redis has the task, by the event of its key.

Ours is measured with the notification after each commit, without it, and with it in a database of
16 partitions.
"""

import re
import threading
import time
from typing import Any

import redis

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Orders, Stage, StageError
from benchmarks.lab.verdict import Runs, percentile
from expirebridge import Bridge

PERCENTS = (50, 90, 99, 100)
PATIENCE = 60.0
LATER = 3 * 86_400.0
_OF_TASK = re.compile(rb"\?mail\.send\?\[(\d+),")


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.databases:
        return []
    base = {"transactions": scale(1000), "seconds": scale.seconds(10)}
    if contender.kind != "ours":
        return [base]
    return [
        base | {"poked": poked, "partitions": partitions}
        for poked, partitions in ((True, 1), (False, 1), (True, 16))
    ]


def measure(case: Case) -> Figures:
    variant = case.variant
    notify = {"LAB_NOTIFY": "1" if variant.get("poked", True) else "0"}
    handler = case.contender.handlers[0]
    with Stage(
        case.contender, case.binary, handler=handler, variables=notify,
        database=variant.get("database"),
    ) as stage:  # fmt: skip
        if variant.get("partitions", 1) > 1:
            with Bridge(stage.server.url) as bridge:
                bridge.create_partitions(variant["partitions"])
        stage.start()
        stage.rest()
        commits, runs = _run(stage, variant)
        begun = {n: min(runs.began[n]) for n in commits if n in runs.began}
        figures: Figures = {
            "asked": len(commits),
            "lost": sum(1 for n in commits if n not in runs.ended),
            "twice": sum(1 for times in runs.began.values() if len(times) > 1),
            "begin_ms": _spread([(at - commits[n]) * 1000 for n, at in begun.items()]),
        }
        if case.contender.kind == "ours":
            figures["row_ms"] = _spread(_until_written(stage, runs, len(commits)))
            figures["server_ms"] = _spread(_until_there(stage, variant))
        return figures


def _orders(variant: Variant, **more: Any) -> Orders:
    count, seconds = variant["transactions"], variant["seconds"]
    return Orders(count=count, seconds=seconds, tasks=1, **more)


def _run(stage: Stage, variant: Variant) -> tuple[dict[int, float], Runs]:
    """When each transaction was committed, and the journal when all tasks have run."""
    answer = stage.producer.transact(_orders(variant, first=0))
    commits = {int(number): float(at) for number, at in answer["commits"]}
    stage.wait_until(lambda: commits.keys() <= stage.ended(), limit=PATIENCE, every=0.1)
    time.sleep(1.0)  # for what runs twice
    return commits, Runs.read(stage.journal)


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"{p}": percentile(ordered, p) for p in PERCENTS} if ordered else {}


def _until_written(stage: Stage, runs: Runs, count: int) -> list[float]:
    """From the end of each handler until the row of its task says so, in ms."""
    done = "FROM expirebridge_task WHERE status = 10"

    def all_are_written() -> bool:
        return bool(stage.database.scalar(f"SELECT count(*) {done}") >= count)

    if not stage.wait_until(all_are_written, limit=PATIENCE, every=0.2):
        raise StageError("rows do not learn that their tasks have ended")
    rows = stage.database.rows(f"SELECT params, modified {done}")
    numbers = ((int(params[1:].partition(",")[0]), modified) for params, modified in rows)
    return [at - runs.ended[n][-1] * 1000 for n, at in numbers if n in runs.ended]


def _until_there(stage: Stage, variant: Variant) -> list[float]:
    """From the commit of each task that is due later until Redis has it, in ms."""
    first = variant["transactions"]
    with Ear(stage.server.url, wanted=variant["transactions"]) as ear:
        answer = stage.producer.transact(_orders(variant, first=first, delay=LATER))
        there = ear.heard(PATIENCE)
    return [(there[int(n)] - at) * 1000 for n, at in answer["commits"]]


class Ear(threading.Thread):
    """Notes when the key of each task is written. The server tells of its TTL."""

    def __init__(self, url: str, *, wanted: int) -> None:
        super().__init__(daemon=True)
        self._wanted = wanted
        self._there: dict[int, float] = {}
        self._all = threading.Event()
        self._client = redis.Redis.from_url(url)
        self._events = self._client.pubsub(ignore_subscribe_messages=True)
        self._events.psubscribe("__keyevent@*__:expire")
        self._over = False

    def __enter__(self) -> "Ear":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        self.join()
        self._events.close()
        self._client.close()

    def run(self) -> None:
        while not self._over:
            message = self._events.get_message(timeout=0.2)
            found = message and _OF_TASK.search(message["data"])
            if found:
                self._there.setdefault(int(found[1]), time.time())
                if len(self._there) >= self._wanted:
                    self._all.set()

    def heard(self, limit: float) -> dict[int, float]:
        """When each of the wanted tasks was there."""
        if not self._all.wait(limit):
            raise StageError(f"{len(self._there)} of {self._wanted} tasks came to Redis")
        return self._there


MEASUREMENT = Measurement(
    name="commit_lag",
    variants=variants,
    measure=measure,
    limit=300,
    seconds=22,
    quick=Quick(part=0.3, seconds=18),
)
