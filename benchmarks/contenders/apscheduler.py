# /// script
# requires-python = ">=3.11"
# dependencies = ["apscheduler[redis]==3.11.3", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "APScheduler"
# kind = "peer"
# worker = []
# runs_in_driver = true
# handlers = ["plain"]
# concurrency = "ThreadPoolExecutor(100)"
# settings = """\
#   the job store in Redis; misfire_grace_time = None, or late jobs would be left out; a job store \
#   must not be shared, says the documentation, so the process that makes jobs runs them"""
# redelivery = 0 # none
# documentation = ["https://apscheduler.readthedocs.io/en/3.x/userguide.html"]
# # There must be one scheduler only for a job store, says the documentation.
# recurring = ["python -m benchmarks.kit.recur {module} --stay"]
# ///
"""APScheduler 3: one process makes jobs, keeps them in Redis, and sleeps until the next is due."""

from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from benchmarks.kit import journal
from benchmarks.kit.server import CONCURRENCY, DATABASE, HOST, PORT, SERIES, USER

scheduler = BackgroundScheduler(
    jobstores={"default": RedisJobStore(db=DATABASE, host=HOST, port=PORT)},
    executors={"default": ThreadPoolExecutor(CONCURRENCY)},
    job_defaults={"misfire_grace_time": None},
    timezone=UTC,
)


def send(number: int, user: str) -> None:
    journal.handle_plain(number)


def open() -> None:
    scheduler.start()


def schedule(number: int, due: float) -> None:
    scheduler.add_job(send, "date", run_date=datetime.fromtimestamp(due, UTC), args=[number, USER])


def recur() -> None:
    for number in range(SERIES):
        scheduler.add_job(
            send, "cron", minute="*", args=[number, USER], id=f"series-{number}",
            replace_existing=True,
        )  # fmt: skip
