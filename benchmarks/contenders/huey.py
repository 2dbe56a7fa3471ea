# /// script
# requires-python = ">=3.11"
# dependencies = ["huey[redis]==3.5.4", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "Huey"
# kind = "peer"
# worker = ["huey_consumer {module}.huey --workers {concurrency} --worker-type thread --quiet"]
# handlers = ["plain"]
# concurrency = "--workers 100 --worker-type thread"
# settings = "RedisHuey without results; the scheduler's interval is its shortest, a second"
# redelivery = 0 # none
# documentation = ["https://huey.readthedocs.io/en/latest/guide.html"]
# ///
"""Huey: its scheduler looks once a second for what is due, and puts it into a queue."""

from datetime import UTC, datetime

from huey import RedisHuey
from redis import ConnectionPool

from benchmarks.kit import journal
from benchmarks.kit.server import CONCURRENCY, URL, USER

# redis-py's own limit of 100 connections is too low for 100 workers and a scheduler.
pool = ConnectionPool.from_url(URL, max_connections=2 * CONCURRENCY)
huey = RedisHuey("lab", connection_pool=pool, results=False, utc=True)


@huey.task()
def send(number: int, user: str) -> None:
    journal.handle_plain(number)


def schedule(number: int, due: float) -> None:
    send.schedule(args=(number, USER), eta=datetime.fromtimestamp(due, UTC))
