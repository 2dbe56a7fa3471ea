"""BullMQ: `<prefix>:<queue>:delayed` is a sorted set of ids, each job a hash beside it.

The score is the due time in ms, times 4096, plus a number that keeps the order. This is the form of
src/commands/includes/getDelayedScore.lua in BullMQ 6.
"""

from collections.abc import Iterator
from typing import Any

import orjson
import redis
from redis import exceptions

from expirebridge.errors import InvalidSetting
from expirebridge.importing import redis_source
from expirebridge.importing.job import Found, Job, JobFilter, Refused, SkippedJob, id_of
from expirebridge.task.durations import LONGEST

# The hash of a BullMQ job: src/commands/includes/storeJob.lua in BullMQ 6 writes it.

FIELDS = ("name", "data", "opts", "timestamp", "atm", "priority", "rjk", "parentKey")
"""Those that are read."""
_MOST_ATTEMPTS = 100


def read_job(queue: str, id: str, due: int, fields: dict[str, bytes]) -> Found:
    """Read a job that is due at this ms. Raises Refused."""
    if "name" not in fields:
        raise Refused("its hash is missing, or has no name")
    if "rjk" in fields:
        return SkippedJob(f"{queue}:{id}", "the next runs of job schedulers; schedule them again")
    if "parentKey" in fields:
        raise Refused("a child of a flow: here no parent would wait for it")
    options = redis_source.json_of(fields.get("opts", b"{}"), "its opts")
    if not isinstance(options, dict):
        raise Refused("its opts is not an object")
    retry, changes = _retry(options)
    if redis_source.whole(fields.get("priority")):
        changes += ("a priority is ignored",)
    # The ids of a queue are numbers that begin at 1 in each database; with the ms at which the job
    # was made, two queues of one name can be imported.
    made = redis_source.text(fields.get("timestamp", b"0"))
    return Job(
        source_id=f"{queue}:{id}",
        id=id_of("bullmq", f"{queue}:{id}:{made}"),
        names=(f"{queue}.{redis_source.text(fields['name'])}", queue),
        args=[redis_source.json_of(fields.get("data", b"{}"), "its data")],
        kwargs={},
        due=due,
        attempt=redis_source.whole(fields.get("atm")),
        policies=retry,
        changes=changes,
    )


def _retry(options: dict[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The retry policy that `attempts` and `backoff` mean; and what of them is lost."""
    attempts, backoff = redis_source.whole(options.get("attempts")), options.get("backoff") or 0
    if attempts < 2:
        return {}, ()
    if not isinstance(backoff, dict):
        backoff = {"type": "fixed", "delay": backoff}
    if backoff.get("type") not in {"fixed", "exponential"}:
        return {}, ("a backoff of your own becomes the handler's retry policy",)
    first, factor = min(redis_source.whole(backoff.get("delay")), round(LONGEST * 1000)) / 1000, 1
    if backoff["type"] == "exponential":
        factor = 2
    delays = [
        min(first * factor**failed, LONGEST) for failed in range(min(attempts, _MOST_ATTEMPTS) - 1)
    ]
    return {"retry": orjson.dumps(delays).decode()}, ()


_PER_MS = 4096
_UNREAD = {
    "active": "running; stop the workers, and let them finish",
    "waiting-children": "waiting for the children of a flow",
}


class BullMQ:
    """The queues of BullMQ in a database."""

    def __init__(self, client: redis.Redis, wanted: JobFilter) -> None:
        self._client, self._wanted = client, wanted
        self._prefix = wanted.prefix or "bull"

    def count(self) -> int:
        """See `Source.count`."""
        return sum(self._client.zcard(self._key(queue, "delayed")) for queue in self._queues())

    def pages(self) -> Iterator[list[Found]]:
        """See `Source.pages`."""
        for queue in self._queues():
            for page in redis_source.sorted_set(self._client, self._key(queue, "delayed")):
                yield self._read(queue, page)
            yield from self._waiting(queue)
            yield [
                SkippedJob(queue, reason, count=count)
                for name, reason in _UNREAD.items()
                if (count := self._length(queue, name))
            ]

    def _queues(self) -> list[str]:
        there = sorted(redis_source.keys(self._client, f"{self._prefix}:", ":meta"))
        for queue in self._wanted.queues or there:
            redis_source.check_type(self._client, self._key(queue, "delayed"), "zset")
        if missing := sorted({*self._wanted.queues} - {*there}):
            found = f"there are {', '.join(there)}" if there else "there is none"
            raise InvalidSetting(f"no queue of BullMQ is named {', '.join(missing)}; {found}")
        if not there:
            raise InvalidSetting(
                f"no queue of BullMQ was found, that is no key {self._prefix}:<queue>:meta: "
                "check the database's number and --source-prefix"
            )
        return list(dict.fromkeys(self._wanted.queues)) or there

    def _waiting(self, queue: str) -> Iterator[list[Found]]:
        if not self._wanted.waiting:
            names = ("wait", "paused", "prioritized")
            if count := sum(self._length(queue, name) for name in names):
                yield [
                    SkippedJob(
                        queue,
                        "waiting for a worker, not for a time; --waiting takes them, too",
                        count=count,
                    )
                ]
            return
        due = float(self._wanted.now * _PER_MS)
        for name in ("wait", "paused"):
            for ids in redis_source.items(self._client, self._key(queue, name)):
                # Older versions keep a marker among the ids.
                yield self._read(queue, [(id, due) for id in ids if not id.startswith(b"0:")])
        for page in redis_source.sorted_set(self._client, self._key(queue, "prioritized")):
            yield self._read(queue, [(id, due) for id, _ in page])

    def _read(self, queue: str, page: list[tuple[bytes, float]]) -> list[Found]:
        pipeline = self._client.pipeline(transaction=False)
        for id, _ in page:
            pipeline.hmget(f"{self._prefix}:{queue}:".encode() + id, FIELDS)
        rows = pipeline.execute(raise_on_error=False)
        return [
            _found(queue, redis_source.text(id), score, row)
            for (id, score), row in zip(page, rows, strict=True)
        ]

    def _length(self, queue: str, name: str) -> int:
        key = self._key(queue, name)
        kind = redis_source.text(self._client.type(key))
        counts = {"list": self._client.llen, "zset": self._client.zcard}
        return counts[kind](key) if kind in counts else 0

    def _key(self, queue: str, name: str) -> str:
        return f"{self._prefix}:{queue}:{name}"


def _found(queue: str, id: str, score: float, row: Any) -> Found:
    if isinstance(row, exceptions.AskError):
        raise row
    if isinstance(row, redis.ResponseError):
        return SkippedJob(f"{queue}:{id}", "its key does not hold a hash", refused=True)
    fields = {name: raw for name, raw in zip(FIELDS, row, strict=True) if raw is not None}
    try:
        return read_job(queue, id, redis_source.moment_of_score(score, _PER_MS), fields)
    except Refused as error:
        return SkippedJob(f"{queue}:{id}", str(error), refused=True)
