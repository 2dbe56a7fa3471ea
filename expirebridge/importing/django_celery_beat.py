"""django-celery-beat: a row for each periodic task, and one for its schedule in a table beside it.

The tables are those of django_celery_beat/models.py, of 2.2 to 2.9.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.importing import redis_source, sql_source
from expirebridge.importing.job import (
    Found,
    Job,
    RecurringJob,
    Refused,
    SkippedJob,
    cron_of,
    slug_of,
)
from expirebridge.series.schedule import Schedule, schedule_from_json
from expirebridge.task.task import to_ms

if TYPE_CHECKING:
    pass

_TASKS = "django_celery_beat_periodictask"
_QUERY = """
SELECT task.*, crontab.minute, crontab.hour, crontab.day_of_month, crontab.month_of_year,
    crontab.day_of_week, crontab.timezone, period.every, period.period, clocked.clocked_time
FROM django_celery_beat_periodictask AS task
LEFT JOIN django_celery_beat_crontabschedule AS crontab ON crontab.id = task.crontab_id
LEFT JOIN django_celery_beat_intervalschedule AS period ON period.id = task.interval_id
LEFT JOIN django_celery_beat_clockedschedule AS clocked ON clocked.id = task.clocked_id
ORDER BY task.id
"""
_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}
_CLEANUP = "celery.backend_cleanup"
_ROUTING = ("queue", "exchange", "routing_key", "priority")


class DjangoCeleryBeat(sql_source.SqlSource):
    """The periodic tasks of a Django project."""

    table, query = _TASKS, _QUERY

    def _found(self, row: dict[str, Any]) -> Found:
        name = str(row["name"])
        try:
            return self._left(row, name) or self._job(row, name)
        except (Refused, InvalidTask) as error:
            return SkippedJob(name, str(error), refused=True)

    def _left(self, row: dict[str, Any], name: str) -> SkippedJob | None:
        expires = self._moment(row, "expires")
        if row["task"] == _CLEANUP:
            return SkippedJob(name, "Celery's own: it empties the backend of results")
        if expires is not None and expires <= self._wanted.now:
            return SkippedJob(name, "expired")
        if row["one_off"] and row["total_run_count"]:
            return SkippedJob(name, "to run once, which it did")
        if not row["enabled"] and not self._wanted.disabled:
            return SkippedJob(name, "disabled; --disabled makes them, paused")
        return None

    def _job(self, row: dict[str, Any], name: str) -> Found:
        call: dict[str, Any] = {
            "source_id": name,
            # Two projects have other names for one number.
            "id": f"beat-{row['id']}-{slug_of(name)}".rstrip("-"),
            "names": (str(row["task"]),),
            "args": _json_of(row, "args", list),
            "kwargs": _json_of(row, "kwargs", dict),
            "changes": _changes(row),
            "policies": _policies(row),
        }
        if row["solar_id"] is not None:
            raise Refused("at sunrise or sunset: here no schedule follows the sun")
        if row["clocked_id"] is not None:
            due = self._moment(row, "clocked_time") or self._wanted.now
        elif row["one_off"]:
            # Not from now on: another import must find the same time.
            since = self._moment(row, "last_run_at") or self._moment(row, "date_changed") or 0
            due = _once(schedule_from_json(self._schedule(row)), since)
        else:
            return RecurringJob(**call, schedule=self._schedule(row), paused=not row["enabled"])
        if not row["enabled"]:
            return SkippedJob(name, "disabled, and to run once: make it when it is wanted")
        return Job(**call, due=due)

    def _schedule(self, row: dict[str, Any]) -> dict[str, Any]:
        """The schedule as a line of an import has it."""
        start = self._moment(row, "start_time")
        schedule: dict[str, Any] = {}
        if row["crontab_id"] is not None:
            fields = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
            # A comma may have spaces around it there.
            parts = ("".join(str(row[field]).split()) for field in fields)
            schedule |= {"cron": cron_of(*parts), "tz": str(row["timezone"])}
        elif row["interval_id"] is not None:
            if row["period"] not in _MS:
                raise Refused("an interval in microseconds: here one is at least a second")
            schedule["every"] = row["every"] * _MS[row["period"]]
            # Ticks keep their distance from the last run.
            start = max(start or 0, self._moment(row, "last_run_at") or 0) or None
        else:
            raise Refused("it has no schedule")
        expires = self._moment(row, "expires")
        schedule |= {} if start is None else {"start": start}
        return schedule | ({} if expires is None else {"until": expires})

    def _moment(self, row: dict[str, Any], name: str) -> int | None:
        """A time in ms. Django stores UTC where a database has no zones."""
        value = row[name]
        if value is None:
            return None
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=self._wanted.zone))
        except (AttributeError, ValueError, OverflowError):
            raise Refused(f"its {name} is not a time") from None


def _once(schedule: Schedule, since: int) -> int:
    due = schedule.next_after(since, created=since)
    if due is None:
        raise Refused("to run once, and there is no such time")
    return due


def _json_of(row: dict[str, Any], name: str, kind: type) -> Any:
    value = redis_source.json_of(str(row[name]), f"its {name}")
    if not isinstance(value, kind):
        raise Refused(f"its {name} are not a JSON {'array' if kind is list else 'object'}")
    return value


def _policies(row: dict[str, Any]) -> dict[str, Any]:
    seconds = row.get("expire_seconds")
    return {"misfire": orjson.dumps(["skip", float(seconds)]).decode()} if seconds else {}


def _changes(row: dict[str, Any]) -> tuple[str, ...]:
    lost = [name for name in _ROUTING if row.get(name) not in {None, ""}]
    if row.get("headers") not in {None, "", "{}"}:
        lost.append("headers")
    return tuple(f"ignored: {name}" for name in lost)
