"""Commands that move tasks from one server to another: export, and import."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from expirebridge import wire
from expirebridge.cli.figures import store_of
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import print_counts
from expirebridge.errors import InvalidTask
from expirebridge.hooks import Hooks
from expirebridge.new_tasks import CHUNK_TASKS
from expirebridge.operations import Operations
from expirebridge.retry import decode_policy
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import NewTask, Stored, When
from expirebridge.store.store import Store
from expirebridge.store.urls import safe_url
from expirebridge.store.views import split_call
from expirebridge.task import Outcome, State, from_ms, to_ms

CHUNK_BYTES = 512 * 1024
WAITING = (State.PENDING, State.PAUSED)
NUMBERS = ("timeout", "ttl", "attempt")
TEXTS = ("retry", "error", "trace", "misfire")
SOONEST_PAUSED = 1000


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("export")(export)
    app.command("import")(import_)


def export(
    file: Annotated[
        Path | None, typer.Argument(help="Where to; stdout if not given.", dir_okay=False)
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Write the tasks that wait as lines of JSON, each with the time at which it is due.

    The tasks stay where they are: stop the listeners first, and do not start them again, or what
    is imported elsewhere runs twice. What moves meanwhile may be missed. Running and finished tasks
    are left out.

    Example: expirebridge export tasks.ndjson

    Example: expirebridge export --url $OLD | gzip > tasks.ndjson.gz
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store, _opened(file) as output:
        counts = store.run(Operations(settings, Hooks()).count())
        if counts.listeners:
            _warn(f"{counts.listeners} listeners beat: what they run meanwhile runs elsewhere, too")
        with _bar("exporting", counts.pending + counts.paused) as advance:
            unreadable = 0
            for task, state in _waiting(store):
                line = _line(task, state)
                if line is None:
                    unreadable += 1
                else:
                    output.write(line)
                advance(1)
    if counts.running:
        _warn(f"{counts.running} running tasks are left out")
    if unreadable:
        _warn(f"{unreadable} tasks that cannot be read are left out")


def import_(
    file: Annotated[Path, typer.Argument(help="What export wrote; - is stdin.")],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Make the tasks that were exported, with their ids, due when they were.

    A task whose id the server knows, finished or not, is left as it is: so it can be repeated after
    a break. How far it came in a file is noted beside it, in FILE.imported, and it goes on from
    there. What was due meanwhile is due now.

    Example: expirebridge import tasks.ndjson --url redis://new.example:6379/1

    Example: expirebridge export --url $OLD | expirebridge import - --url $NEW
    """
    settings = Settings.read(url=url, prefix=prefix)
    operations = Operations(settings, Hooks())
    place = Place.of(file, settings)
    done = Done()
    try:
        with closing(store_of(settings)) as store, _read(file, place) as source:
            size = None if place is None else file.stat().st_size
            with _bar("importing", size, done=source.offset) as advance:
                for chunk in source.chunks():
                    _make(store, operations, chunk, done)
                    if place is not None:
                        place.note(source.offset)
                    advance(chunk.size)
    finally:
        print_counts({"created": done.created, "kept": done.kept}, as_json=as_json)


@dataclass
class Done:
    """What became of the tasks."""

    created: int = 0
    kept: int = 0


# Out


def _waiting(store: Store) -> Iterator[tuple[Stored, State]]:
    """Every task that waits. A paused one that is resumed meanwhile comes twice, with one id."""
    for state in WAITING:
        pages = calls.Pages(partial(calls.stored_page, state))
        while page := store.run(pages.next()):
            for task in page.tasks:
                yield task, state


def _line(task: Stored, state: State) -> bytes | None:
    """The task as a line; None if it is not what a producer could have made."""
    func, inline = split_call(task.fields["call"])
    args = task.fields.get("args", inline)
    line: dict[str, Any] = {"id": task.id, "func": func, "due": from_ms(task.due)}
    try:
        line["args"] = args.decode()
        if "key" in task.fields:
            line["key"] = task.key.decode()
        line |= {name: task.fields[name].decode() for name in TEXTS if name in task.fields}
        line |= {name: float(task.fields[name]) for name in NUMBERS if name in task.fields}
    except ValueError:
        return None
    if "tags" in task.fields:
        line["tags"] = task.fields["tags"].decode().split()
    if state is State.PAUSED:
        line["left"] = int(task.fields.get("left", b"0"))
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


# In


@dataclass
class Chunk:
    """Some lines, read as tasks."""

    tasks: list[NewTask] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    size: int = 0


class Source:
    """The lines, a chunk at a time; `offset` is where the next one begins."""

    def __init__(self, lines: BinaryIO, offset: int = 0) -> None:
        self._lines = lines
        self.offset = offset

    def chunks(self) -> Iterator[Chunk]:
        """Read tasks. Raises InvalidTask for a line that is none, with its place."""
        chunk = Chunk()
        for line in self._lines:
            if line.strip():
                task, paused = self._task(line, self.offset + chunk.size)
                chunk.tasks.append(task)
                chunk.paused += [task.id] if paused else []
            chunk.size += len(line)
            if len(chunk.tasks) == CHUNK_TASKS or chunk.size > CHUNK_BYTES:
                yield self._through(chunk)
                chunk = Chunk()
        if chunk.size:
            yield self._through(chunk)

    def _through(self, chunk: Chunk) -> Chunk:
        self.offset += chunk.size
        return chunk

    def _task(self, line: bytes, offset: int) -> tuple[NewTask, bool]:
        try:
            return _task_of(orjson.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, InvalidTask) as error:
            reason = f"{type(error).__name__} {error}"
            raise InvalidTask(f"the line at byte {offset} is no exported task: {reason}") from None


def _task_of(line: dict[str, Any]) -> tuple[NewTask, bool]:
    func, args = wire.check_func(line["func"]), line["args"].encode()
    wire.check_args(args)
    fields: dict[str, calls.Argument] = {}
    if len(args) > wire.MAX_ARGS_IN_KEY and "key" not in line:
        fields["args"], args = args, wire.IN_RECORD
    if tags := wire.check_tags(line.get("tags", ())):
        fields["tags"] = " ".join(tags)
    if "retry" in line:
        decode_policy(line["retry"].encode())
    fields |= {name: str(line[name]) for name in (*TEXTS, "key") if name in line}
    fields |= {name: _number(line[name]) for name in NUMBERS if name in line}
    left = line.get("left")
    if left is None:
        when = When(_ms(line["due"]), relative=False)
    else:
        # It is paused a moment after it was made, and must not be due before.
        when = When(max(int(left), SOONEST_PAUSED), relative=True)
    task = NewTask(
        id=wire.check_id(line["id"]),
        drawn=False,
        if_exists="keep",
        call=func.encode() + b"?" + args,
        when=when,
        fields=fields,
    )
    return task, left is not None


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _ms(due: str) -> int:
    return max(to_ms(datetime.fromisoformat(due)), 0)


def _make(store: Store, operations: Operations, chunk: Chunk, done: Done) -> None:
    known = store.run(calls.find_known([task.id for task in chunk.tasks]))
    by_id = {task.id: task for task, there in zip(chunk.tasks, known, strict=True) if not there}
    done.kept += len(chunk.tasks) - len(by_id)
    if by_id:
        outcomes = [made.outcome for made in store.run(calls.make(by_id.values()))]
        done.created += outcomes.count(Outcome.CREATED)
        done.kept += outcomes.count(Outcome.KEPT)
    # Those that were made before a break may not have been paused yet.
    if chunk.paused:
        store.run(operations.pause_all(chunk.paused))


@dataclass(frozen=True)
class Place:
    """Beside a file, how many of its bytes were imported, and where to."""

    path: Path
    of_what: str
    """The server, and the file as it was: another server, or a newer file, begins anew."""

    @classmethod
    def of(cls, file: Path, settings: Settings) -> "Place | None":
        """The place of a file; what comes through a pipe has none."""
        if not file.is_file():
            return None
        status = file.stat()
        where = f"{safe_url(settings.url)} {settings.prefix}"
        of_what = f"{where} {status.st_size} {status.st_mtime_ns}"
        return cls(file.with_name(f"{file.name}.imported"), of_what)

    def reached(self) -> int:
        """Where to go on."""
        if not self.path.exists():
            return 0
        offset, _, of_what = self.path.read_text().partition(" ")
        return int(offset) if of_what == self.of_what else 0

    def note(self, offset: int) -> None:
        """Note it whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(f"{offset} {self.of_what}")
        new.replace(self.path)


@contextmanager
def _read(file: Path, place: Place | None) -> Iterator[Source]:
    if str(file) == "-":
        yield Source(sys.stdin.buffer)
        return
    with file.open("rb") as lines:
        offset = place.reached() if place else 0
        if offset:
            lines.seek(offset)
        yield Source(lines, offset)


@contextmanager
def _opened(file: Path | None) -> Iterator[BinaryIO]:
    """The file, there only when it is whole; or stdout."""
    if file is None:
        yield sys.stdout.buffer
        return
    part = file.with_name(f"{file.name}.part")
    with part.open("wb") as output:
        yield output
        output.flush()
        os.fsync(output.fileno())
    part.replace(file)


@contextmanager
def _bar(what: str, total: int | None, *, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if a person watches."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


def _warn(message: str) -> None:
    typer.echo(f"expirebridge: {message}", err=True)
