"""arq: a sorted set of ids by their due time in ms, and each job pickled in `arq:job:<id>`.

The names of keys are those of arq/constants.py, and the dict is that of serialize_job in
arq/jobs.py, of arq 0.16 to 0.28.
"""

from collections.abc import Iterator
from typing import Any

import redis

from expirebridge.errors import InvalidSetting
from expirebridge.importing import redis_source
from expirebridge.importing.job import Found, Job, JobFilter, Refused, SkippedJob, id_of
from expirebridge.importing.pickled import load_plain

_QUEUE = "arq:queue"
_LATEST = 2**53
_KEYS = (b"arq:job:", b"arq:retry:", b"arq:in-progress:")


class Arq:
    """The queues of arq in a database."""

    def __init__(self, client: redis.Redis, wanted: JobFilter) -> None:
        if wanted.prefix is not None:
            raise InvalidSetting("--source-prefix: arq has none; --queue names the sorted set")
        self._client, self._wanted = client, wanted
        self._queues = list(dict.fromkeys(wanted.queues)) or [_QUEUE]

    def count(self) -> int:
        """See `Source.count`."""
        for queue in self._queues:
            redis_source.check_type(self._client, queue, "zset")
            if not self._client.exists(queue):
                raise InvalidSetting(
                    f"there is no key {queue}: the queue is empty, or it is another database, or "
                    "it has another name: --queue"
                )
        return sum(map(self._client.zcard, self._queues))

    def pages(self) -> Iterator[list[Found]]:
        """See `Source.pages`."""
        for queue in self._queues:
            for page in redis_source.sorted_set(self._client, queue):
                pipeline = self._client.pipeline(transaction=False)
                for id, _ in page:
                    # A string of another type is missing here, and no error.
                    pipeline.mget([key + id for key in _KEYS])
                    pipeline.zscore("arq:abort", id)
                replies = pipeline.execute()
                rows = zip(page, replies[::2], replies[1::2], strict=True)
                yield [
                    self._found(redis_source.text(id), score, values, aborted)
                    for (id, score), values, aborted in rows
                ]

    def _found(self, id: str, score: float, values: list[Any], aborted: float | None) -> Found:
        raw, tries, running = values
        if aborted is not None:
            return SkippedJob(id, "aborted")
        if running is not None:
            return SkippedJob(id, "running; stop the workers, and let them finish")
        if raw is None:
            return SkippedJob(id, "expired: their arq:job:<id> is gone")
        try:
            return self._job(id, redis_source.moment_of_score(score), load_plain(raw), tries)
        except Refused as error:
            return SkippedJob(id, str(error), refused=True)

    def _job(self, id: str, due: int, value: Any, tries: Any) -> Found:
        match value:
            case {
                "f": str() as name,
                "a": list() as args,
                "k": dict() as kwargs,
                "et": int() as made,
                **rest,
            } if 0 <= made < _LATEST:
                pass
            case _:
                raise Refused("what is pickled is not a job of arq")
        if name.startswith("cron:"):
            return SkippedJob(id, "the next runs of cron jobs; schedule them again")
        if due <= made and not self._wanted.waiting:
            return SkippedJob(id, "waiting for a worker, not for a time; --waiting takes them, too")
        return Job(
            source_id=id,
            # An application's own ids come again; the ms at which a job was made does not.
            id=id_of("arq", f"{id}:{made}"),
            names=(name,),
            args=args,
            kwargs=kwargs,
            due=due,
            attempt=max(redis_source.whole(tries), redis_source.whole(rest.get("t")) - 1),
            policies={},
        )
