# /// script
# requires-python = ">=3.11"
# dependencies = ["arq==0.28.0"]
#
# [tool.lab]
# title = "arq"
# kind = "peer"
# worker = ["arq {module}.WorkerSettings"]
# handlers = ["async"]
# concurrency = "max_jobs = 100"
# settings = "defaults"
# redelivery = 310 # job_timeout and 10 s
# documentation = ["https://arq-docs.helpmanual.io/"]
# recurring = ["arq {module}.WorkerSettings"]
# ///
"""arq: a sorted set of jobs, looked at every half second."""

from datetime import UTC, datetime
from typing import Any

from arq import ArqRedis, create_pool, cron
from arq.connections import RedisSettings
from arq.cron import CronJob

from benchmarks.kit import journal
from benchmarks.kit.server import CONCURRENCY, DATABASE, HOST, PORT, SERIES, USER

SETTINGS = RedisSettings(host=HOST, port=PORT, database=DATABASE)


async def send(context: dict[str, Any], number: int, user: str) -> None:
    await journal.handle(number)


def series(number: int) -> CronJob:
    async def tick(context: dict[str, Any]) -> None:
        await journal.handle(number)

    return cron(tick, name=f"series-{number}")


class WorkerSettings:
    functions = (send,)
    cron_jobs = tuple(map(series, range(SERIES)))
    redis_settings = SETTINGS
    max_jobs = CONCURRENCY


class Producer:
    pool: ArqRedis


async def open() -> None:
    Producer.pool = await create_pool(SETTINGS)


async def schedule(number: int, due: float) -> None:
    await Producer.pool.enqueue_job(
        "send", number, USER, _defer_until=datetime.fromtimestamp(due, UTC)
    )
