"""What the hash of a BullMQ job says: src/commands/includes/storeJob.lua in BullMQ 6 writes it."""

from typing import Any

import orjson

from expirebridge.migration.sources import redis_pages
from expirebridge.migration.sources.job import Found, Job, Left, Refused, id_of
from expirebridge.model.durations import LONGEST

FIELDS = ("name", "data", "opts", "timestamp", "atm", "priority", "rjk", "parentKey")
"""Those that are read."""
_MOST_ATTEMPTS = 100


def read_job(queue: str, id: str, due: int, fields: dict[str, bytes]) -> Found:
    """Read a job that is due at this ms. Raises Refused."""
    if "name" not in fields:
        raise Refused("its hash is missing, or has no name")
    if "rjk" in fields:
        return Left(f"{queue}:{id}", "the next runs of job schedulers; schedule them again")
    if "parentKey" in fields:
        raise Refused("a child of a flow: here no parent would wait for it")
    options = redis_pages.json_of(fields.get("opts", b"{}"), "its opts")
    if not isinstance(options, dict):
        raise Refused("its opts is not an object")
    retry, changes = _retry(options)
    if redis_pages.whole(fields.get("priority")):
        changes += ("a priority is ignored",)
    # The ids of a queue are numbers that begin at 1 in each database; with the ms at which the job
    # was made, two queues of one name can be imported.
    made = redis_pages.text(fields.get("timestamp", b"0"))
    return Job(
        source_id=f"{queue}:{id}",
        id=id_of("bullmq", f"{queue}:{id}:{made}"),
        names=(f"{queue}.{redis_pages.text(fields['name'])}", queue),
        args=[redis_pages.json_of(fields.get("data", b"{}"), "its data")],
        kwargs={},
        due=due,
        attempt=redis_pages.whole(fields.get("atm")),
        policies=retry,
        changes=changes,
    )


def _retry(options: dict[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The retry policy that `attempts` and `backoff` mean; and what of them is lost."""
    attempts, backoff = redis_pages.whole(options.get("attempts")), options.get("backoff") or 0
    if attempts < 2:
        return {}, ()
    if not isinstance(backoff, dict):
        backoff = {"type": "fixed", "delay": backoff}
    if backoff.get("type") not in {"fixed", "exponential"}:
        return {}, ("a backoff of your own becomes the handler's retry policy",)
    first, factor = min(redis_pages.whole(backoff.get("delay")), round(LONGEST * 1000)) / 1000, 1
    if backoff["type"] == "exponential":
        factor = 2
    delays = [
        min(first * factor**failed, LONGEST) for failed in range(min(attempts, _MOST_ATTEMPTS) - 1)
    ]
    return {"retry": orjson.dumps(delays).decode()}, ()
