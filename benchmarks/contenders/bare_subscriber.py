# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "bare subscriber"
# kind = "baseline"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.bare_subscriber"]
# handlers = ["async"]
# settings = "redis-py; a key with a TTL for each task, and one subscriber to `expired` events"
# keepalive = true
# redelivery = 0 # none
# documentation = ["https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/"]
# ///
"""What one writes without a library: plain keys with a TTL, and a subscriber to `expired` events.

It keeps nothing: what expires while it is away is lost. A task that takes time would run in a task
of the loop's; these begin where the event is heard.
"""

import asyncio
import json
from collections.abc import Sequence

import redis
import redis.asyncio

from benchmarks.kit import journal
from benchmarks.kit.server import DATABASE, URL, USER

client = redis.Redis.from_url(URL)


def schedule(number: int, due: float) -> None:
    client.set(_key(number), b"", pxat=round(due * 1000))


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    pipeline = client.pipeline(transaction=False)
    for number, due in tasks:
        pipeline.set(_key(number), b"", pxat=round(due * 1000))
    pipeline.execute()


def keep(numbers: Sequence[int], seconds: float) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in numbers:
        pipeline.pexpire(_key(number), round(seconds * 1000))
    pipeline.execute()


def _key(number: int) -> str:
    return f"mail.send?{json.dumps([number, USER])}"


async def listen() -> None:
    running: set[asyncio.Task[None]] = set()
    async with redis.asyncio.Redis.from_url(URL).pubsub() as pubsub:
        await pubsub.subscribe(f"__keyevent@{DATABASE}__:expired")
        async for message in pubsub.listen():
            if message["type"] == "message":
                number, _user = json.loads(message["data"].partition(b"?")[2])
                task = asyncio.ensure_future(journal.handle(number))
                running.add(task)
                task.add_done_callback(running.discard)


if __name__ == "__main__":
    asyncio.run(listen())
