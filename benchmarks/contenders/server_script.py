# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "the server: an empty script"
# kind = "limit"
# environment = "lab"
# worker = []
# handlers = ["async"]
# settings = "redis-py; one call of a Lua script that does nothing for each task"
# documentation = ["https://redis.io/docs/latest/commands/evalsha/"]
# ///
"""The limit of all that is done by a script: the call alone, with the arguments of a task."""

import json
from collections.abc import Sequence

import redis

from benchmarks.kit.server import URL, USER

client = redis.Redis.from_url(URL)
script = client.script_load("return 1")


def schedule(number: int, due: float) -> None:
    client.evalsha(script, 1, "prefix", "mail.send", json.dumps([number, USER]), round(due * 1000))


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    pipeline = client.pipeline(transaction=False)
    for number, due in tasks:
        arguments = ("mail.send", json.dumps([number, USER]), round(due * 1000))
        pipeline.evalsha(script, 1, "prefix", *arguments)
    pipeline.execute()
