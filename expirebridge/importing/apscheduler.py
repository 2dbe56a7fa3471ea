"""APScheduler 3: a table of jobs, each pickled with the objects of its trigger.

The pickles are read as symbols: nothing of APScheduler is needed, and nothing in them is run. Their
form is that of __getstate__ in apscheduler/job.py and apscheduler/triggers, of 3.0 to 3.11.
"""

import struct
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from expirebridge.importing import redis_source, sql_source
from expirebridge.importing.job import (
    Found,
    Job,
    RecurringJob,
    Refused,
    SkippedJob,
    cron_of,
    id_of,
)
from expirebridge.importing.pickled import Symbol, load_symbols, plain_of
from expirebridge.series.time_zones import zone_of
from expirebridge.task.task import to_ms

if TYPE_CHECKING:
    pass

_TABLE = "apscheduler_jobs"
_QUERY = f"SELECT id, next_run_time, job_state FROM {_TABLE} ORDER BY id"  # noqa: S608 - a name of ours
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LAST = 5
"""The `last` of `last fri`, among 1st, 2nd, ..."""
_POSITION = "#:"
"""Before a weekday of a month, such as the second Tuesday, which cron has in its last field."""
_DEFAULT_GRACE = 1
_TRIGGERS = "apscheduler.triggers."


class APScheduler(sql_source.SqlSource):
    """The jobs of a SQLAlchemyJobStore."""

    table, query = _TABLE, _QUERY

    def _found(self, row: dict[str, Any]) -> Found:
        id = str(row["id"])
        try:
            return self._job(id, *_state_of(row["job_state"], row["next_run_time"]))
        except Refused as error:
            return SkippedJob(id, str(error), refused=True)

    def _job(self, id: str, state: Any, due: int | None) -> Found:
        match state:
            case {
                "func": str() as func,
                "trigger": Symbol() as trigger,
                "args": list() | tuple() as args,
                "kwargs": dict(),
            }:
                pass
            case _:
                raise Refused("what is pickled is not a job of APScheduler 3")
        if due is None and not self._wanted.disabled:
            return SkippedJob(id, "paused; --disabled makes them, paused")
        call: dict[str, Any] = {
            "source_id": id,
            "id": id_of("apscheduler", id),
            "names": (func.replace(":", "."), func),
            "args": plain_of(args),
            "kwargs": plain_of(state["kwargs"]),
        }
        kind = type(trigger).path.removeprefix(_TRIGGERS)
        if kind == "date.DateTrigger":
            if due is None:
                return SkippedJob(id, "paused, and to run once: make it when it is wanted")
            policies, changes = _policies(state, recurring=False)
            return Job(**call, due=due, policies=policies, changes=changes)
        schedule = _schedule_of(kind, trigger.state, due)
        policies, changes = _policies(state, recurring=True)
        schedule["overlap"] = "skip" if state.get("max_instances", 1) == 1 else "allow"
        return RecurringJob(
            **call, schedule=schedule, paused=due is None, policies=policies, changes=changes
        )


def _state_of(pickled: object, at: object) -> tuple[Any, int | None]:
    """A job's state as symbols, and the ms at which it is due."""
    match pickled, at:
        case bytes() | memoryview(), None:
            return load_symbols(bytes(pickled)), None
        case bytes() | memoryview(), float():
            return load_symbols(bytes(pickled)), redis_source.moment_of_score(at * 1000)
    raise Refused("its row is not as APScheduler writes it")


def _policies(state: dict[str, Any], *, recurring: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What becomes of a late run; and what is lost."""
    policies, changes = {}, []
    grace = state.get("misfire_grace_time")
    if grace == _DEFAULT_GRACE:
        changes.append("a misfire_grace_time of 1 s, the default, is ignored: what is late runs")
    elif isinstance(grace, int) and grace > 0:
        policies["misfire"] = orjson.dumps(["skip", float(grace)]).decode()
    if recurring and not state.get("coalesce"):
        changes.append("coalesce=False is ignored: of what was missed, the latest runs")
    if recurring and state.get("max_instances", 1) != 1:
        changes.append(
            "max_instances is ignored: runs may overlap; @handler(limit=...) limits them"
        )
    return policies, tuple(changes)


def _schedule_of(kind: str, state: dict[str, Any], due: int | None) -> dict[str, Any]:
    """The schedule as a line of an import has it."""
    schedule: dict[str, Any]
    if kind == "cron.CronTrigger":
        schedule = {"cron": _cron_of(state.get("fields")), "tz": _zone_of(state.get("timezone"))}
        start = _moment(state.get("start_date"))
    elif kind == "interval.IntervalTrigger":
        schedule = {"every": _interval_of(state.get("interval"))}
        start = due if due is not None else _moment(state.get("start_date"))
    else:
        raise Refused(
            f"its trigger is {kind.rpartition('.')[2] or 'unknown'}: here a series has a cron "
            "expression or an interval"
        )
    end, jitter = _moment(state.get("end_date")), redis_source.whole(state.get("jitter"))
    optional = {"start": start, "until": end, "jitter": jitter * 1000 or None}
    return schedule | {name: value for name, value in optional.items() if value is not None}


def _interval_of(value: Any) -> int:
    match value:
        case Symbol(
            path="datetime.timedelta", args=(int() as days, int() as seconds, int() as micros)
        ):
            return (days * 86_400 + seconds) * 1000 + micros // 1000
    raise Refused("its interval is not a timedelta")


def _moment(value: Any) -> int | None:
    """A datetime in ms since 1970."""
    match value:
        case None:
            return None
        case Symbol(path="datetime.datetime", args=(bytes() as packed, zone)):
            try:
                return to_ms(_unpacked(packed).replace(tzinfo=zone_of(_zone_of(zone))))
            except (struct.error, ValueError, OverflowError):  # InvalidTask, too
                pass
    raise Refused("a time in its trigger is not a datetime with a zone")


def _unpacked(packed: bytes) -> datetime:
    """The ten bytes that a datetime pickles as. Raises struct.error, and ValueError."""
    year, month, day, hour, minute, second, high, low = struct.unpack(">HBBBBBBH", packed)
    # The month's first bit says which one is meant of two equal times, when clocks are set back.
    return datetime(
        year, month & 0x7F, day, hour, minute, second, (high << 16) + low, fold=month >> 7
    )


def _zone_of(value: Any) -> str:
    """The name of a time zone of zoneinfo or pytz, or UTC of datetime."""
    match value:
        case Symbol(path="pytz._UTC"):
            return "UTC"
        case Symbol(path="pytz._p", args=(str() as name, *_)):
            return name
        case Symbol(path="zoneinfo.ZoneInfo._unpickle", args=(str() as name, *_)):
            return name
        case Symbol(
            path="",
            args=(Symbol(path="builtins.getattr", args=(zone, "_unpickle")), str() as name, *_),
        ):
            if getattr(zone, "path", "") == "zoneinfo.ZoneInfo":
                return name
        case Symbol(
            path="datetime.timezone", args=(Symbol(path="datetime.timedelta", args=(0, 0, 0)), *_)
        ):
            return "UTC"
    raise Refused("its time zone is not one of zoneinfo or pytz, nor UTC")


# A CronTrigger's fields and expressions, which are objects.


def _cron_of(fields: Any) -> str:
    texts: dict[str, str] = {}
    for field in fields if isinstance(fields, list) else ():
        match field:
            case Symbol(state={"name": str() as name, "expressions": list() as expressions}):
                texts[name] = ",".join(_expression(name, one) for one in expressions)
    for name, plain in ("second", "0"), ("year", "*"), ("week", "*"):
        if texts.get(name, plain) != plain:
            raise Refused(f"its trigger has {name}={texts[name]}: here cron expressions have none")
    try:
        day, weekday = texts["day"], texts["day_of_week"]
        if day.startswith(_POSITION) and weekday == "*":
            day, weekday = "*", day.removeprefix(_POSITION)
        return cron_of(texts["minute"], texts["hour"], day, texts["month"], weekday)
    except KeyError:
        raise Refused("its trigger lacks fields") from None


def _expression(field: str, expression: Any) -> str:
    """One part of a field, as cron has it."""
    kind = type(expression).path.rpartition(".")[2] if isinstance(expression, Symbol) else ""
    state = expression.state if kind else {}
    match state:
        case {"option_num": int() as option, "weekday": int() as day} if 0 <= day < 7:
            # The last Friday is 5L, and the second Tuesday TUE#2.
            last = f"{(day + 1) % 7}L"
            return _POSITION + (last if option == _LAST else f"{_WEEKDAYS[day]}#{option + 1}")
        case {"first": int() as first, "last": int() | None as to, "step": int() | None as step}:
            if field == "day_of_week":
                return _weekdays(first, to, step)
            span = "" if to in {first, None} else f"-{to}"
            return f"{first}{span}{f'/{step}' if step else ''}"
        case {"step": int() | None as step} if kind == "AllExpression":
            if field == "day_of_week" and step:
                return _weekdays(0, None, step)
            return f"*/{step}" if step else "*"
    if kind == "LastDayOfMonthExpression":
        return "L"
    raise Refused(f"its trigger has a {field} that is none of APScheduler's")


def _weekdays(first: int, last: int | None, step: int | None) -> str:
    """The names of days: there Monday is 0, and here Sunday is."""
    days = range(7)[first : 7 if last is None else last + 1 : step or 1]
    return ",".join(_WEEKDAYS[day] for day in days) if len(days) < 7 else "*"
