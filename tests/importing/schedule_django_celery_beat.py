"""Writes django-celery-beat's tables into the database of argv[1], as JSON on stdin says.

Each task is the fields of a PeriodicTask; `crontab`, `interval`, `clocked` and `solar` are those of
its schedule.
"""

import json
import sys
from datetime import UTC, datetime
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

MODELS = {"crontab": "CrontabSchedule", "interval": "IntervalSchedule",
          "clocked": "ClockedSchedule", "solar": "SolarSchedule"}  # fmt: skip
TIMES = ("clocked_time", "expires", "start_time", "last_run_at")


def moments(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromtimestamp(value / 1000, UTC) if name in TIMES else value
        for name, value in fields.items()
    }


def schedule(what: list[dict[str, Any]]) -> None:
    from django_celery_beat import models

    for fields in what:
        for kind, model in MODELS.items():
            if kind in fields:
                fields[kind] = getattr(models, model).objects.create(**moments(fields[kind]))
        models.PeriodicTask.objects.create(**moments(fields))


if __name__ == "__main__":
    settings.configure(
        INSTALLED_APPS=["django_celery_beat"],
        DATABASES={"default": json.loads(sys.argv[1])},
        USE_TZ=True,
    )
    django.setup()
    call_command("migrate", verbosity=0)
    schedule(json.load(sys.stdin))
