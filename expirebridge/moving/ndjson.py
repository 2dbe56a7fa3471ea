"""A waiting task, a series, or a group as a line of JSON: what export writes, and import reads.

docs/reference/task-lines.md shows the form, for those who write such lines themselves.
"""

import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from expirebridge.connection.urls import safe_url
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.groups.names import FOLLOW_UP, MOST_MEMBERS, ON_FAILED
from expirebridge.moving.calls import Stored, StoredGroup
from expirebridge.moving.importer import ImportChunk, ImportedGroup, ImportedSeries, ImportInput
from expirebridge.series.records import spec_of
from expirebridge.series.replies import StoredSeries
from expirebridge.series.schedule import SeriesSpec, check_series_id, schedule_from_json
from expirebridge.settings import Settings
from expirebridge.store.record_values import split_call
from expirebridge.store.task_records import EXPORTED, exported
from expirebridge.task import keys
from expirebridge.task.calls.call import Argument, When
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.durations import check_aware
from expirebridge.task.new_task import CHUNK_TASKS
from expirebridge.task.record_fields import HINTS, record_fields, text_of, whole_of
from expirebridge.task.task import State, from_ms, to_ms

FIELDS = sorted({"args", "due", "func", "id", "key", "lanes", "left", *EXPORTED})
FIELDS_OF_SERIES = sorted(
    {"args", "func", "made", "misfire", "paused", "retry", "schedule", "series", "tags", "timeout"}
)
_REQUIRED_NUMBERS = ("made", "next", "left", "succeeded", "failed", "cancelled")
_NUMBERS = ("closed", "ended", "failed_at", "stopped", "cancelled_to")
FIELDS_OF_GROUPS = sorted(
    {"definition", "group", "members", "on_failed", "then", *_REQUIRED_NUMBERS, *_NUMBERS}
)
_NUMBERS_IN_BYTE = 4
_SOONEST_PAUSED = 1000
_LONGEST_LANE = 250


@dataclass(frozen=True, slots=True)
class Line:
    """A task to make, and whether it is paused."""

    task: NewTask
    paused: bool
    lanes: list[str]
    """The ordered lanes that it keeps waiting."""


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


def encode_group(group: StoredGroup) -> bytes | None:
    """The group as a line; None if its record is damaged."""
    try:
        line: dict[str, Any] = {
            "group": group.name,
            **{name: int(group.fields[name]) for name in _REQUIRED_NUMBERS},
            **{name: int(group.fields[name]) for name in _NUMBERS if name in group.fields},
            "definition": group.fields["definition"].decode(),
            "on_failed": group.fields["on_failed"].decode(),
            "members": b64encode(group.members).decode(),
        }
        if group.follow_up is not None:
            line["then"] = _values_of(group.follow_up, State.PAUSED)
        elif "then" in group.fields:
            line["then"] = group.fields["then"].decode()
    except (KeyError, ValueError):
        return None
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def encode(task: Stored, state: State, lanes: Sequence[str] = ()) -> bytes | None:
    """The task as a line; None if it is not what a producer could have made.

    `lanes` are the ordered lanes that it keeps waiting.
    """
    try:
        line = _values_of(task, state)
        if lanes:
            line["lanes"] = lanes
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except ValueError:
        return None


def _values_of(task: Stored, state: State) -> dict[str, Any]:
    """The fields of a task's line. Raises ValueError if no producer could have made it."""
    func, inline = split_call(task.fields["call"])
    args = task.fields.get("args", inline)
    line: dict[str, Any] = {"id": task.id, "func": func, "due": from_ms(task.due)}
    line["args"] = args.decode()
    if "key" in task.fields:
        line["key"] = task.key.decode()
    line |= exported(task.fields)
    if state is State.PAUSED:
        line["left"] = int(task.fields.get("left", b"0"))
    return line


def decode(line: bytes) -> Line | ImportedSeries | ImportedGroup:
    """Read a line. Raises InvalidTask, which says what is wrong and never quotes arguments."""
    values = _values(line)
    if "group" in values:
        return group_of(values)
    return series_of(values) if "series" in values else task_of(values)


def group_of(values: dict[str, Any]) -> ImportedGroup:
    """Check the fields of a line of a group. Raises InvalidTask, as `decode` does."""
    name, on_failed = keys.check_group(values["group"]), text_of(values, "on_failed")
    if on_failed not in ON_FAILED:
        raise InvalidTask(f"on_failed={on_failed!r:.60}: one of {', '.join(ON_FAILED)}")
    fields: dict[str, Argument] = {
        "on_failed": on_failed, "definition": text_of(values, "definition")
    }  # fmt: skip
    for field in (*_REQUIRED_NUMBERS, *(field for field in _NUMBERS if field in values)):
        fields[field] = whole_of(values, field, least=0)
    follow_up = None
    if "then" in values:
        fields["then"] = name + FOLLOW_UP
        follow_up = _follow_up_of(name, values["then"])
    return ImportedGroup(name, _members(text_of(values, "members")), fields, follow_up)


def _members(encoded: str) -> bytes:
    try:
        members = b64decode(encoded, validate=True)
    except ValueError:
        members = None
    if members is None or len(members) > MOST_MEMBERS // _NUMBERS_IN_BYTE:
        raise InvalidTask(
            f"members: write base64, of two bits for each of {MOST_MEMBERS:,} numbers"
        )
    return members


def _follow_up_of(name: str, values: object) -> NewTask | None:
    """The follow-up of a group, if it is paused; otherwise there is its id alone."""
    id = name + FOLLOW_UP
    if values == id:
        return None
    if not isinstance(values, dict):
        raise InvalidTask(f"then: write {id!r}, or the line of that task")
    try:
        read = task_of(_known(values, FIELDS))
    except InvalidTask as error:
        raise InvalidTask(f"then: {error}") from None
    if not read.paused or read.task.id != id:
        raise InvalidTask(f"then: a follow-up has the id {id!r}, and `left`")
    return read.task


def series_of(values: dict[str, Any]) -> ImportedSeries:
    """Check the fields of a line of a series. Raises InvalidTask, as `decode` does."""
    args, schedule = text_of(values, "args").encode(), values.get("schedule")
    if not keys.is_hidden(args):
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
    return ImportedSeries(
        spec, whole_of(values, "made", least=0) if "made" in values else 0, paused
    )


def task_of(values: dict[str, Any]) -> Line:
    """Check the fields of a line. Raises InvalidTask, as `decode` does."""
    func, args = keys.check_func(text_of(values, "func")), text_of(values, "args").encode()
    is_hidden = keys.is_hidden(args)
    if not is_hidden:
        keys.check_args(args)
    fields = record_fields(values)
    if "key" in values:
        fields["key"] = _key(text_of(values, "key"), func, args)
    elif is_hidden or len(args) > keys.MAX_ARGS_IN_KEY:
        fields["args"], args = args, keys.IN_RECORD
    if "left" in values:
        # It is paused a moment after it was made, and must not be due before.
        when = When(max(whole_of(values, "left", least=0), _SOONEST_PAUSED), relative=True)
    else:
        when = When(max(to_ms(_moment(text_of(values, "due"))), 0), relative=False)
    task = NewTask(
        id=keys.check_id(text_of(values, "id")),
        has_random_id=False,
        if_exists="keep",
        call=func.encode() + b"?" + args,
        when=when,
        fields=fields,
    )
    return Line(task, paused="left" in values, lanes=_lanes(values.get("lanes", [])))


def _lanes(values: object) -> list[str]:
    if not isinstance(values, list) or not all(map(_is_lane, values)):
        raise InvalidTask('lanes: write an array of the names of lanes, such as ["orders=17"]')
    return values


def _is_lane(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_LANE and "\n" not in name


def _values(line: bytes) -> dict[str, Any]:
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidTask(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(values, dict):
        raise InvalidTask("write one JSON object on each line")
    if "group" in values:
        return _known(values, FIELDS_OF_GROUPS)
    return _known(values, FIELDS_OF_SERIES if "series" in values else FIELDS)


def _known(values: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The values, if all fields are known. Raises InvalidTask."""
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


# Reading lines in chunks. The progress of an import is stored beside its file.

CHUNK_BYTES = 512 * 1024


@dataclass(frozen=True)
class Position:
    """A position in the file: the bytes and the lines read so far."""

    offset: int = 0
    line: int = 0


class LineReader:
    """The lines, a chunk at a time; `position` is the end of the last one."""

    def __init__(self, file: BinaryIO, position: Position) -> None:
        self._file = file
        self.position = position

    def chunks(self) -> Iterator[ImportChunk]:
        """Read tasks. Raises InvalidTask for a line that is none, with its number."""
        chunk = ImportChunk()
        number = self.position.line
        for line in self._file:
            number += 1
            chunk.size += len(line)
            if line.strip():
                _add(chunk, line, number)
            count = len(chunk.tasks) + len(chunk.series) + len(chunk.groups)
            if count >= CHUNK_TASKS or chunk.size > CHUNK_BYTES:
                yield self._through(chunk, number)
                chunk = ImportChunk()
        if chunk.size:
            yield self._through(chunk, number)

    def _through(self, chunk: ImportChunk, number: int) -> ImportChunk:
        self.position = Position(self.position.offset + chunk.size, number)
        return chunk


def _add(chunk: ImportChunk, line: bytes, number: int) -> None:
    try:
        read = decode(line)
    except InvalidTask as error:
        raise InvalidTask(f"line {number}: {error}") from None
    if isinstance(read, ImportedSeries):
        chunk.series.append(read)
        return
    if isinstance(read, ImportedGroup):
        chunk.groups.append(read)
        return
    chunk.tasks.append(read.task)
    chunk.paused += [read.task.id] if read.paused else []
    if read.lanes:
        chunk.lanes[read.task.id] = read.lanes


@dataclass(frozen=True)
class ImportPosition:
    """The progress of an import, stored beside its file."""

    path: Path
    identity: str
    """The server, and the file as it was: another server, or a newer file, starts over."""

    @classmethod
    def of(cls, file: Path, settings: Settings) -> "ImportPosition | None":
        """The position of a file; a pipe has none."""
        if not file.is_file():
            return None
        status = file.stat()
        where = f"{safe_url(settings.url)} {settings.prefix}"
        identity = f"{where} {status.st_size} {status.st_mtime_ns}"
        return cls(file.with_name(f"{file.name}.imported"), identity)

    def reached(self) -> Position:
        """The position from which an import continues."""
        if not self.path.exists():
            return Position()
        offset, line, identity = self.path.read_text().split(" ", 2)
        return Position(int(offset), int(line)) if identity == self.identity else Position()

    def store(self, position: Position) -> None:
        """Store the position atomically."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(f"{position.offset} {position.line} {self.identity}")
        new.replace(self.path)


@contextmanager
def read(file: Path, position: ImportPosition | None) -> Iterator[ImportInput]:
    """The lines that are still to be imported. Those of a file are all checked before.

    Raises InvalidTask for a line that is none, InvalidSetting for a file that cannot be read.
    """
    if position is None:
        consequence = "fix it and import all again: tasks that are known are kept"
        with _with_consequence(consequence), _open(file) as piped:
            yield ImportInput(LineReader(piped, Position()).chunks(), None)
        return
    start = position.reached()
    with _open(file) as opened:
        opened.seek(start.offset)
        with _with_consequence("nothing was imported"):
            for _ in LineReader(opened, start).chunks():
                pass
        opened.seek(start.offset)
        chunks = _noting(LineReader(opened, start), position)
        yield ImportInput(chunks, file.stat().st_size, begun=start.offset)


def _noting(source: LineReader, position: ImportPosition) -> Iterator[ImportChunk]:
    """The chunks. The position is stored when the next one is asked for."""
    for chunk in source.chunks():
        yield chunk
        position.store(source.position)


def _open(file: Path) -> BinaryIO:
    if str(file) == "-":
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidSetting(f"{file}: it cannot be read: {error.strerror}") from None


@contextmanager
def _with_consequence(consequence: str) -> Iterator[None]:
    """Add the consequence for the other lines to the error of a bad one."""
    try:
        yield
    except InvalidTask as error:
        raise InvalidTask(f"{error}; {consequence}") from None
