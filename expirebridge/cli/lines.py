"""A waiting task, or a series, as a line of JSON: what export writes, and import reads.

docs/moving.md shows the form, for those who write such lines themselves.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from expirebridge import wire
from expirebridge.errors import InvalidTask
from expirebridge.misfire import decode_misfire
from expirebridge.moments import check_aware
from expirebridge.policy.every import schedule_from_json
from expirebridge.policy.series import SeriesSpec, check_series_id
from expirebridge.policy.timeout import check_timeout
from expirebridge.retry import decode_policy
from expirebridge.series.records import spec_of
from expirebridge.store import calls
from expirebridge.store.calls import NewTask, Stored, When
from expirebridge.store.fields import EXPORTED, EXPORTED_TEXTS, exported
from expirebridge.store.series_views import StoredSeries
from expirebridge.store.views import split_call
from expirebridge.task import State, from_ms, to_ms

FIELDS = sorted({"args", "due", "func", "id", "key", "left", *EXPORTED})
FIELDS_OF_SERIES = sorted(
    {"args", "func", "made", "misfire", "paused", "retry", "schedule", "series", "tags", "timeout"}
)
_JSON = 'write JSON as text, such as "[{}]"'
_HINTS = {
    "id": 'write text, such as "order-17"',
    "series": 'write text, such as "nightly"',
    "func": 'write text, such as "mail.send"',
    "args": _JSON.format('42,\\"hi\\"'),
    "due": 'write a time with its zone, such as "2031-01-01T08:00:00+00:00"',
    "retry": _JSON.format("15,60"),
    "misfire": _JSON.format('\\"skip\\",300'),
}
_LARGEST = 2**53 - 1
"""Lua reads larger numbers inexactly."""
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
    args, schedule = _text(values, "args").encode(), values.get("schedule")
    wire.check_args(args)
    if not isinstance(schedule, dict):
        raise InvalidTask('schedule: write an object, such as {"cron":"30 2 * * *","tz":"UTC"}')
    paused = values.get("paused", False)
    if not isinstance(paused, bool):
        raise InvalidTask("paused: write true or false")
    fields = {
        name: value for name, value in _fields(values).items() if not isinstance(value, bytes)
    }
    spec = SeriesSpec(
        id=check_series_id(_text(values, "series")),
        func=wire.check_func(_text(values, "func")),
        args=args,
        schedule=schedule_from_json(schedule),
        fields=fields,
    )
    return SeriesLine(spec, _whole(values, "made", least=0) if "made" in values else 0, paused)


def task_of(values: dict[str, Any]) -> Line:
    """Check the fields of a line. Raises InvalidTask, as `decode` does."""
    func, args = wire.check_func(_text(values, "func")), _text(values, "args").encode()
    wire.check_args(args)
    fields = _fields(values)
    if "key" in values:
        fields["key"] = _key(_text(values, "key"), func, args)
    elif len(args) > wire.MAX_ARGS_IN_KEY:
        fields["args"], args = args, wire.IN_RECORD
    if "left" in values:
        # It is paused a moment after it was made, and must not be due before.
        when = When(max(_whole(values, "left", least=0), _SOONEST_PAUSED), relative=True)
    else:
        when = When(max(to_ms(_moment(_text(values, "due"))), 0), relative=False)
    task = NewTask(
        id=wire.check_id(_text(values, "id")),
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


def _fields(values: dict[str, Any]) -> dict[str, calls.Argument]:
    """What the record holds beside the call, checked as make_task would."""
    fields: dict[str, calls.Argument] = {}
    if tags := wire.check_tags(values.get("tags", ())):
        fields["tags"] = " ".join(tags)
    fields |= {name: _text(values, name) for name in EXPORTED_TEXTS if name in values}
    for name, read in (("retry", decode_policy), ("misfire", decode_misfire)):
        if name in fields:
            try:
                read(str(fields[name]).encode())
            except ValueError as error:
                raise InvalidTask(f"{name}: {error}") from None
    if "timeout" in values:
        fields["timeout"] = _timeout(values["timeout"])
    if "ttl" in values:
        fields["ttl"] = _whole(values, "ttl", least=1, unit=" of milliseconds")
    for name in ("attempt", "snoozes"):
        if name in values:
            fields[name] = _whole(values, name, least=0)
    return fields


def _text(values: dict[str, Any], name: str) -> str:
    hint = _HINTS.get(name, "write text")
    if name not in values:
        raise InvalidTask(f"{name}: it is missing; {hint}")
    value = values[name]
    if not isinstance(value, str):
        raise InvalidTask(f"{name}: {hint}")
    return value


def _moment(text: str) -> datetime:
    try:
        return check_aware(datetime.fromisoformat(text), name="due")
    except ValueError:
        raise InvalidTask(f"due={text!r}: {_HINTS['due']}") from None


def _timeout(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTask("timeout: write a number of seconds, such as 30 or 1.5")
    check_timeout(value)
    return str(int(value)) if value == int(value) else repr(value)


def _whole(values: dict[str, Any], name: str, *, least: int, unit: str = "") -> int:
    value = values[name]
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not whole or not least <= value <= _LARGEST:
        raise InvalidTask(f"{name}: write a whole number{unit}, {least} or more")
    return int(value)


def _key(name: str, func: str, args: bytes) -> str:
    """The name of a key that another client set, where it is not `<id>:?<func>?<args>`."""
    try:
        key = wire.parse_key(name.encode())
    except wire.InvalidKey:
        key = None
    if key is None or (key.func, key.args) != (func, args):
        raise InvalidTask(f"key: it must be the name of a key of {func} with these arguments")
    return name
