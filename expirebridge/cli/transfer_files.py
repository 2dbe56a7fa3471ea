"""A waiting task, or a series, as a line of JSON: what export writes, and import reads.

docs/moving.md shows the form, for those who write such lines themselves.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.model import keys
from expirebridge.model.moments import check_aware
from expirebridge.model.schedule import schedule_from_json
from expirebridge.model.series import SeriesSpec, check_series_id
from expirebridge.model.task import State, from_ms, to_ms
from expirebridge.producer.record_fields import HINTS, record_fields, text_of, whole_of
from expirebridge.series.records import spec_of
from expirebridge.store.commands import NewTask, Stored, When
from expirebridge.store.fields import EXPORTED, exported
from expirebridge.store.series_records import StoredSeries
from expirebridge.store.task_records import split_call

FIELDS = sorted({"args", "due", "func", "id", "key", "left", *EXPORTED})
FIELDS_OF_SERIES = sorted(
    {"args", "func", "made", "misfire", "paused", "retry", "schedule", "series", "tags", "timeout"}
)
_SOONEST_PAUSED = 1000


@dataclass(frozen=True, slots=True)
class Line:
    """A task that is to be made, and perhaps paused."""

    task: NewTask
    paused: bool


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """A series that is to be made, and perhaps paused."""

    spec: SeriesSpec
    made: int
    """When it was made, in ms: intervals count from there."""
    paused: bool


def encode_series(series: StoredSeries) -> bytes | None:
    """The series as a line; None if its record is damaged."""
    try:
        spec = spec_of(series)
        line: dict[str, Any] = {
            "series": series.id,
            "func": spec.func,
            "args": spec.args.decode(),
            "schedule": spec.schedule.to_json(),
            "made": series.whole("made") or 0,
            **spec.fields,
        }
    except ValueError:
        return None
    if "tags" in line:
        line["tags"] = line["tags"].split()
    if "paused" in series.record:
        line["paused"] = True
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def encode(task: Stored, state: State) -> bytes | None:
    """The task as a line; None if it is not what a producer could have made."""
    func, inline = split_call(task.fields["call"])
    args = task.fields.get("args", inline)
    line: dict[str, Any] = {"id": task.id, "func": func, "due": from_ms(task.due)}
    try:
        line["args"] = args.decode()
        if "key" in task.fields:
            line["key"] = task.key.decode()
        line |= exported(task.fields)
    except ValueError:
        return None
    if state is State.PAUSED:
        line["left"] = int(task.fields.get("left", b"0"))
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def decode(line: bytes) -> Line | SeriesLine:
    """Read a line. Raises InvalidTask, which says what is wrong and never quotes arguments."""
    values = _values(line)
    return _series_of(values) if "series" in values else task_of(values)


def _series_of(values: dict[str, Any]) -> SeriesLine:
    args, schedule = text_of(values, "args").encode(), values.get("schedule")
    keys.check_args(args)
    if not isinstance(schedule, dict):
        raise InvalidTask('schedule: write an object, such as {"cron":"30 2 * * *","tz":"UTC"}')
    paused = values.get("paused", False)
    if not isinstance(paused, bool):
        raise InvalidTask("paused: write true or false")
    fields = {
        name: value for name, value in record_fields(values).items() if not isinstance(value, bytes)
    }
    spec = SeriesSpec(
        id=check_series_id(text_of(values, "series")),
        func=keys.check_func(text_of(values, "func")),
        args=args,
        schedule=schedule_from_json(schedule),
        fields=fields,
    )
    return SeriesLine(spec, whole_of(values, "made", least=0) if "made" in values else 0, paused)


def task_of(values: dict[str, Any]) -> Line:
    """Check the fields of a line. Raises InvalidTask, as `decode` does."""
    func, args = keys.check_func(text_of(values, "func")), text_of(values, "args").encode()
    keys.check_args(args)
    fields = record_fields(values)
    if "key" in values:
        fields["key"] = _key(text_of(values, "key"), func, args)
    elif len(args) > keys.MAX_ARGS_IN_KEY:
        fields["args"], args = args, keys.IN_RECORD
    if "left" in values:
        # It is paused a moment after it was made, and must not be due before.
        when = When(max(whole_of(values, "left", least=0), _SOONEST_PAUSED), relative=True)
    else:
        when = When(max(to_ms(_moment(text_of(values, "due"))), 0), relative=False)
    task = NewTask(
        id=keys.check_id(text_of(values, "id")),
        drawn=False,
        if_exists="keep",
        call=func.encode() + b"?" + args,
        when=when,
        fields=fields,
    )
    return Line(task, paused="left" in values)


def _values(line: bytes) -> dict[str, Any]:
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidTask(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(values, dict):
        raise InvalidTask("write one JSON object on each line")
    known = FIELDS_OF_SERIES if "series" in values else FIELDS
    for name in values:
        if name not in known:
            raise InvalidTask(f"{name}: there is no such field; there are {', '.join(known)}")
    return values


def _moment(text: str) -> datetime:
    try:
        return check_aware(datetime.fromisoformat(text), name="due")
    except ValueError:
        raise InvalidTask(f"due={text!r}: {HINTS['due']}") from None


def _key(name: str, func: str, args: bytes) -> str:
    """The name of a key that another client set, where it is not `<id>:?<func>?<args>`."""
    try:
        key = keys.parse_key(name.encode())
    except keys.InvalidKey:
        key = None
    if key is None or (key.func, key.args) != (func, args):
        raise InvalidTask(f"key: it must be the name of a key of {func} with these arguments")
    return name
