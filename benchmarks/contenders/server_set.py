# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "the server: SET ... PX"
# kind = "limit"
# environment = "lab"
# worker = []
# handlers = ["async"]
# settings = "redis-py; one plain key with a TTL for each task, and nobody who runs it"
# documentation = ["https://redis.io/docs/latest/commands/set/"]
# ///
"""The limit: no client of this server makes timers faster than by its plainest command."""

import json
import time
from collections.abc import Sequence

import redis

from benchmarks.kit.server import URL, USER

client = redis.Redis.from_url(URL)


def schedule(number: int, due: float) -> None:
    client.set(_key(number), b"", px=int((due - time.time()) * 1000))


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    pipeline = client.pipeline(transaction=False)
    for number, due in tasks:
        pipeline.set(_key(number), b"", px=int((due - time.time()) * 1000))
    pipeline.execute()


def _key(number: int) -> str:
    return f"mail.send?{json.dumps([number, USER])}"
