"""Schedules jobs with APScheduler in the SQL database of argv[1], as JSON on stdin says."""

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytz
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger


def send(*args: Any, **kwargs: Any) -> None:
    """The job."""


def schedule(what: list[dict[str, Any]]) -> None:
    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(sys.argv[1])}, timezone="Europe/Berlin"
    )
    scheduler.start(paused=True)
    for job in what:
        paused, trigger = job.pop("paused", False), job.pop("trigger")
        if "run_ms" in job:
            job["run_date"] = datetime.fromtimestamp(job.pop("run_ms") / 1000, UTC)
        if "pytz" in job:
            job["timezone"] = pytz.timezone(job.pop("pytz"))
        if job.pop("typed", False):
            job["args"] = [Decimal("1.5")]
        if trigger == "or":
            trigger = OrTrigger([CronTrigger(hour=2), CronTrigger(hour=3)])
        if isinstance(trigger, list):  # a crontab, which takes no other arguments
            trigger = CronTrigger.from_crontab(*trigger)
        made = scheduler.add_job(send, trigger, **job)
        if paused:
            made.pause()
    scheduler.shutdown()


if __name__ == "__main__":
    schedule(json.load(sys.stdin))
