"""Commands that move tasks from one server to another: export, and import."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from expirebridge.cli import lines
from expirebridge.cli.figures import store_of
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import print_counts
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.hooks import Hooks
from expirebridge.new_tasks import CHUNK_TASKS
from expirebridge.operations import Operations
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import NewTask, Stored
from expirebridge.store.store import Store
from expirebridge.store.urls import safe_url
from expirebridge.task import Outcome, State

CHUNK_BYTES = 512 * 1024
WAITING = (State.PENDING, State.PAUSED)


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
                line = lines.encode(task, state)
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

    A file is checked first: if a line is bad, nothing is imported. A task whose id the server
    knows, finished or not, is left as it is: so an import can be repeated after a break. How far it
    came in a file is noted beside it, in FILE.imported, and it goes on from there. What was due
    meanwhile is due now.

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
            with _bar("importing", size, done=source.position.offset) as advance:
                for chunk in source.chunks():
                    _make(store, operations, chunk, done)
                    if place is not None:
                        place.note(source.position)
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


# In


@dataclass
class Chunk:
    """Some lines, read as tasks."""

    tasks: list[NewTask] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True)
class Position:
    """How far the lines were read: so many bytes, and so many lines."""

    offset: int = 0
    line: int = 0


class Source:
    """The lines, a chunk at a time; `position` is the end of the last one."""

    def __init__(self, file: BinaryIO, position: Position) -> None:
        self._file = file
        self.position = position

    def chunks(self) -> Iterator[Chunk]:
        """Read tasks. Raises InvalidTask for a line that is none, with its number."""
        chunk = Chunk()
        number = self.position.line
        for line in self._file:
            number += 1
            chunk.size += len(line)
            if line.strip():
                _add(chunk, line, number)
            if len(chunk.tasks) == CHUNK_TASKS or chunk.size > CHUNK_BYTES:
                yield self._through(chunk, number)
                chunk = Chunk()
        if chunk.size:
            yield self._through(chunk, number)

    def _through(self, chunk: Chunk, number: int) -> Chunk:
        self.position = Position(self.position.offset + chunk.size, number)
        return chunk


def _add(chunk: Chunk, line: bytes, number: int) -> None:
    try:
        read = lines.decode(line)
    except InvalidTask as error:
        raise InvalidTask(f"line {number}: {error}") from None
    chunk.tasks.append(read.task)
    chunk.paused += [read.task.id] if read.paused else []


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
    """The server, and the file as it was: another server, or a newer file, starts over."""

    @classmethod
    def of(cls, file: Path, settings: Settings) -> "Place | None":
        """The place of a file; what comes through a pipe has none."""
        if not file.is_file():
            return None
        status = file.stat()
        where = f"{safe_url(settings.url)} {settings.prefix}"
        of_what = f"{where} {status.st_size} {status.st_mtime_ns}"
        return cls(file.with_name(f"{file.name}.imported"), of_what)

    def reached(self) -> Position:
        """Where to go on."""
        if not self.path.exists():
            return Position()
        offset, line, of_what = self.path.read_text().split(" ", 2)
        return Position(int(offset), int(line)) if of_what == self.of_what else Position()

    def note(self, position: Position) -> None:
        """Note it whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(f"{position.offset} {position.line} {self.of_what}")
        new.replace(self.path)


@contextmanager
def _read(file: Path, place: Place | None) -> Iterator[Source]:
    """The lines that are still to be imported. Those of a file are all checked before."""
    if place is None:
        follows = "mend it and import all again: tasks that are known are kept"
        with _what_follows(follows), _open(file) as piped:
            yield Source(piped, Position())
        return
    start = place.reached()
    with _open(file) as opened:
        opened.seek(start.offset)
        with _what_follows("nothing was imported"):
            for _ in Source(opened, start).chunks():
                pass
        opened.seek(start.offset)
        yield Source(opened, start)


def _open(file: Path) -> BinaryIO:
    if str(file) == "-":
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidSetting(f"{file}: it cannot be read: {error.strerror}") from None


@contextmanager
def _what_follows(said: str) -> Iterator[None]:
    """Say after a bad line what it means for the others."""
    try:
        yield
    except InvalidTask as error:
        raise InvalidTask(f"{error}; {said}") from None


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
    if not console.is_terminal:
        # Some versions of rich write an empty line even for a bar that is disabled.
        yield lambda _: None
        return
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


def _warn(message: str) -> None:
    typer.echo(f"expirebridge: {message}", err=True)
