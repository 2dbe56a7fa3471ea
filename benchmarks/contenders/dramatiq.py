# /// script
# requires-python = ">=3.11"
# dependencies = ["dramatiq[redis]==2.2.1", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "Dramatiq"
# kind = "peer"
# worker = ["dramatiq {module} --processes 2 --threads 50"]
# handlers = ["plain", "async"]
# concurrency = "--processes 2 (its default: one for each core) --threads 50"
# settings = "Redis as the broker; the AsyncIO middleware for async actors"
# redelivery = 300 # heartbeat_timeout is 60 s; then it is up to chance (maintenance_chance)
# documentation = ["https://dramatiq.io/guide.html", "https://dramatiq.io/cookbook.html"]
# ///
"""Dramatiq: workers take delayed messages into their memory, as many as their prefetch allows."""

import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware.asyncio import AsyncIO

from benchmarks.kit import journal
from benchmarks.kit.server import HANDLER, URL, USER

broker = RedisBroker(url=URL)
broker.add_middleware(AsyncIO())
dramatiq.set_broker(broker)


@dramatiq.actor
async def send(number: int, user: str) -> None:
    await journal.handle(number)


@dramatiq.actor
def send_plain(number: int, user: str) -> None:
    journal.handle_plain(number)


actor = {"async": send, "plain": send_plain}[HANDLER]


def schedule(number: int, due: float) -> None:
    delay = max(round((due - time.time()) * 1000), 0)
    actor.send_with_options(args=(number, USER), delay=delay)
