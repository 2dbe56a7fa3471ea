# /// script
# requires-python = ">=3.11"
# dependencies = ["streaq==7.2.0"]
#
# [tool.lab]
# title = "streaq"
# kind = "peer"
# worker = ["streaq run {module}:worker"]
# handlers = ["async", "plain"]
# concurrency = "concurrency = 100, and sync_concurrency = 100 for threads"
# settings = "defaults"
# redelivery = 60 # idle_timeout
# documentation = ["https://streaq.readthedocs.io/"]
# ///
"""streaq: sorted sets for what is delayed, streams for what is due."""

from collections.abc import Sequence
from datetime import UTC, datetime

from streaq import Worker

from benchmarks.kit import journal
from benchmarks.kit.server import CONCURRENCY, HANDLER, URL, USER

worker = Worker(redis_url=URL, concurrency=CONCURRENCY, sync_concurrency=CONCURRENCY)


@worker.task
async def send(number: int, user: str) -> None:
    await journal.handle(number)


@worker.task
def send_plain(number: int, user: str) -> None:
    journal.handle_plain(number)


task = {"async": send, "plain": send_plain}[HANDLER]


async def open() -> None:
    # For as long as the process lives.
    await worker.__aenter__()


async def schedule(number: int, due: float) -> None:
    await task.enqueue(number, USER).start(schedule=datetime.fromtimestamp(due, UTC))


async def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    await worker.enqueue_many(
        [
            task.enqueue(number, USER).start(schedule=datetime.fromtimestamp(due, UTC))
            for number, due in tasks
        ]
    )
