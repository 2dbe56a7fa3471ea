# /// script
# requires-python = ">=3.11"
# dependencies = ["saq[redis,hiredis]==0.26.4", "typing-extensions"]
#
# [tool.lab]
# title = "SAQ"
# kind = "peer"
# worker = ["saq {module}.settings"]
# handlers = ["async", "plain"]
# concurrency = "concurrency = 100; plain functions in a pool of threads of its own size"
# settings = "defaults, with hiredis"
# redelivery = 60 # its sweep, every 60 s
# documentation = ["https://saq-py.readthedocs.io/"]
# ///
"""SAQ: a sorted set of jobs, looked at once a second."""

from typing import Any

from saq import Queue

from benchmarks.kit import journal
from benchmarks.kit.server import CONCURRENCY, HANDLER, URL, USER

queue = Queue.from_url(URL)


async def send(context: dict[str, Any], *, number: int, user: str) -> None:
    await journal.handle(number)


def send_plain(context: dict[str, Any], *, number: int, user: str) -> None:
    journal.handle_plain(number)


settings = {"queue": queue, "functions": [send, send_plain], "concurrency": CONCURRENCY}
FUNCTION = {"async": "send", "plain": "send_plain"}[HANDLER]


async def open() -> None:
    await queue.connect()


async def schedule(number: int, due: float) -> None:
    await queue.enqueue(FUNCTION, number=number, user=USER, scheduled=due)
