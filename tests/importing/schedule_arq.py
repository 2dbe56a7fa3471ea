"""Schedules jobs with arq: schedule_arq.py URL, with what to do as JSON on stdin.

If it is to work, it runs one job, which asks to be tried again.
"""

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import Any

from arq import Retry, create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

TYPED = {"datetime": datetime(2031, 1, 1, tzinfo=UTC), "set": {1, 2}, "bytes": b"hi"}


async def flaky(context: dict[str, Any]) -> None:
    raise Retry(defer=3600)


async def schedule(url: str, what: dict[str, Any]) -> None:
    settings = RedisSettings.from_dsn(url)
    serializer = json_bytes if what.get("json") else None
    pool = await create_pool(settings, job_serializer=serializer)
    for one in what.get("enqueue", ()):
        options: dict[str, Any] = {}
        if "due_ms" in one:
            options["_defer_until"] = datetime.fromtimestamp(one["due_ms"] / 1000, UTC)
        if "id" in one:
            options["_job_id"] = one["id"]
        if "queue" in one:
            options["_queue_name"] = one["queue"]
        args = [TYPED[name] for name in one.get("typed", ())] or one.get("args", [])
        if "nested" in one:
            args = [tuple(one["nested"])]
        await pool.enqueue_job(one["name"], *args, **one.get("kwargs", {}), **options)
    if what.get("work"):
        worker = Worker([flaky], redis_settings=settings, burst=True, max_burst_jobs=1,
                        handle_signals=False, poll_delay=0.01)  # fmt: skip
        await worker.main()
        await worker.close()
    await pool.aclose()


def json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


if __name__ == "__main__":
    asyncio.run(schedule(sys.argv[1], json.load(sys.stdin)))
