# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "expirebridge"
# kind = "ours"
# environment = "lab"
# worker = [
#   "python -m expirebridge listen --url {url} --tasks {here}/expirebridge_tasks",
# ]
# handlers = ["async", "plain"]
# concurrency = "100 by default: coroutines, or threads for plain functions"
# settings = "defaults, with the extra `fast` (hiredis)"
# keepalive = true
# redelivery = 10 # the lease
# documentation = ["docs/how-to/make-tasks.md", "docs/how-to/recurring-tasks.md"]
# recurring = [
#   "python -m expirebridge listen --url {url} --tasks {here}/expirebridge_tasks",
# ]
# recurring_client = "python -m benchmarks.kit.recur {module}"
# ///
"""Ours, as README and docs/how-to/make-tasks.md say."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

import redis

from benchmarks.kit.server import HANDLER, SERIES, URL, USER
from expirebridge import Bridge

FUNC = {
    "async": "mail.send", "plain": "mail.send_plain", "process": "mail.send_apart"
}[HANDLER]  # fmt: skip
bridge = Bridge(URL)


def schedule(number: int, due: float) -> None:
    bridge.make_task(FUNC, [number, USER], at=datetime.fromtimestamp(due, UTC))


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    bridge.make_tasks(
        {"func": FUNC, "args": [number, USER], "at": datetime.fromtimestamp(due, UTC)}
        for number, due in tasks
    )


def keep(numbers: Sequence[int], seconds: float) -> None:
    pipeline = plain_client().pipeline(transaction=False)
    for number in numbers:
        pipeline.pexpire(timers()[number], round(seconds * 1000))
    pipeline.execute()


@cache
def plain_client() -> redis.Redis:
    """Some other program, which knows nothing of expirebridge."""
    return redis.Redis.from_url(URL)


@cache
def timers() -> dict[int, bytes]:
    """The keys of the tasks that are pending, by number."""
    keys = plain_client().scan_iter(match="*:[?]mail.send[?]*", count=10_000)
    return {int(key.rpartition(b"?[")[2].partition(b",")[0]): key for key in keys}


def recur() -> None:
    bridge.schedule_many(
        {"id": f"series-{number}", "func": FUNC, "args": [number, USER], "cron": "* * * * *"}
        for number in range(SERIES)
    )
