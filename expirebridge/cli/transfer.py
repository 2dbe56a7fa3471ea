"""The command that makes the tasks which export wrote, or which another library has scheduled."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, Protocol

import typer

from expirebridge.cli import transfer_files
from expirebridge.cli import transfer_files as line_file
from expirebridge.cli.options import BAD_INPUT, NOT_POSSIBLE, AsJson, Prefix, Url
from expirebridge.cli.output import print_counts, progress_bar, warn
from expirebridge.cli.stats import store_of
from expirebridge.cli.transfer_files import Chunk, Intake
from expirebridge.errors import InvalidSetting
from expirebridge.hooks import Hooks
from expirebridge.migration.sources import job_import
from expirebridge.migration.sources.job_import import JobLibrary, JobOptions
from expirebridge.model.task import Outcome, State, texts_of
from expirebridge.producer.operations import Operations
from expirebridge.series.definition import restore
from expirebridge.settings import Settings
from expirebridge.store.commands import migration, producing
from expirebridge.store.commands import pages as pages_commands
from expirebridge.store.commands import series as series_commands
from expirebridge.store.commands.migration import Stored
from expirebridge.store.commands.producing import NewTask
from expirebridge.store.partitions import Partitions
from expirebridge.store.series_records import StoredSeries


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="What export wrote; - is stdin. With --from, a Redis URL."
        ),
    ],
    library: Annotated[
        JobLibrary | None,
        typer.Option("--from", help="Take over the jobs of this library."),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="OLD=NEW", help="Its name of a function, and yours. Repeatable."
        ),
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(help="The folder of your handlers: refuse jobs that fit none."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this queue. Repeatable.  [default: all; arq:queue]",
            show_default=False,
        ),
    ] = None,
    source_prefix: Annotated[
        str | None,
        typer.Option(
            help="What its keys begin with.  [default: bull for BullMQ, nothing for Celery]",
            show_default=False,
        ),
    ] = None,
    waiting: Annotated[
        bool,
        typer.Option("--waiting", help="Also take jobs that wait for a worker; they are due now."),
    ] = False,
    overdue: Annotated[
        bool,
        typer.Option(
            "--overdue",
            help="When you repeat an import, also make what is overdue, although it may have run.",
        ),
    ] = False,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="Celery's `timezone`, for times without a zone.  [default: UTC]",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Make nothing; print what would be made, and what not."),
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Make the tasks that were exported, with their ids, due when they were.

    A file is checked first: if a line is bad, nothing is imported. A task whose id the server
    knows, finished or not, is left as it is: so an import can be repeated after a break. How far it
    came in a file is noted beside it, in FILE.imported, and it goes on from there. What was due
    meanwhile is due now. A series whose id the server knows is left as it is, too.

    With --from, the delayed jobs of Celery, BullMQ or arq are made as tasks. Nothing is changed
    there: stop its workers first, and delete its keys when you have checked the result. The exit
    code is 2 if jobs were refused; all others are made.

    Example: expirebridge import tasks.ndjson --url redis://new.example:6379/1

    Example: expirebridge export --url $OLD | expirebridge import - --url $NEW

    Example: expirebridge import --from celery redis://old.example:6379/0 --map mail.tasks.send=mail.send --dry-run
    """  # noqa: E501 - an example is one line
    settings = Settings.read(url=url, prefix=prefix, tasks=tasks)
    options = JobOptions(
        map_ or [], tasks, queue or [], source_prefix, waiting, overdue, timezone, dry_run
    )
    if library is None:
        if given := options.given():
            raise InvalidSetting(f"{given}: it requires --from")
        return _import_lines(Path(source), settings, as_json=as_json)
    return _import_jobs(library, source, options, settings, as_json=as_json)


def _import_lines(file: Path, settings: Settings, *, as_json: bool) -> None:
    place = line_file.ImportPosition.of(file, settings)
    done = Done()
    try:
        with closing(store_of(settings)) as store, line_file.read(file, place) as intake:
            chunks = _with_series(intake.chunks, store, settings, done)
            _take_in(store, settings, replace(intake, chunks=chunks), done, dry_run=False)
    finally:
        done.print(as_json=as_json)


def _import_jobs(
    library: JobLibrary, source: str, options: JobOptions, settings: Settings, *, as_json: bool
) -> None:
    with (
        closing(store_of(settings)) as store,
        job_import.read(library, source, options, store, settings) as (intake, report),
    ):
        try:
            _take_in(store, settings, intake, report, dry_run=options.dry_run)
        finally:
            report.print(as_json=as_json)
    if report.refused:
        raise typer.Exit(BAD_INPUT)


class ImportCounter(Protocol):
    """Who counts what became of the tasks."""

    kept: int

    def admit(self, tasks: list[NewTask]) -> list[NewTask]:
        """Which of these tasks, of which the server knows none, are to be made."""
        ...

    def add_made(self, tasks: Sequence[NewTask]) -> None:
        """Count tasks that were made, or would be."""
        ...


@dataclass
class Done:
    """What became of the tasks of lines: each is made, or the server knows it."""

    created: int = 0
    kept: int = 0
    series_created: int = 0
    series_kept: int = 0

    def admit(self, tasks: list[NewTask]) -> list[NewTask]:
        """See `RelayProgress.admit`."""
        return tasks

    def add_made(self, tasks: Sequence[NewTask]) -> None:
        """See `RelayProgress.add_made`."""
        self.created += len(tasks)

    def print(self, *, as_json: bool) -> None:
        """Print the counts, those of series only if there were any."""
        counts = {"created": self.created, "kept": self.kept}
        if self.series_created or self.series_kept:
            counts |= {"series created": self.series_created, "series kept": self.series_kept}
        print_counts(counts, as_json=as_json)


def _take_in(
    store: Partitions, settings: Settings, intake: Intake, account: ImportCounter, *, dry_run: bool
) -> None:
    operations = Operations(settings, Hooks())
    with progress_bar("importing", intake.size, done=intake.begun) as advance:
        for chunk in intake.chunks:
            new = account.admit(_unknown(store, chunk, account))
            made = new if dry_run or not new else _make(store, new, account)
            account.add_made(made)
            # Those that were made before a break may not have been paused yet.
            if chunk.paused and not dry_run:
                store.run(operations.pause_all(chunk.paused))
            advance(chunk.size)


def _with_series(
    chunks: Iterator[Chunk], store: Partitions, settings: Settings, done: Done
) -> Iterator[Chunk]:
    """The chunks; when the tasks of one are made, so are its series."""
    for chunk in chunks:
        yield chunk
        for line in chunk.series:
            restoring = restore(line.spec, made=line.made, paused=line.paused, lease=settings.lease)
            created = store.run(restoring)
            done.series_created += created
            done.series_kept += not created


def _unknown(store: Partitions, chunk: Chunk, account: ImportCounter) -> list[NewTask]:
    """The tasks of which the server has no record, each once."""
    if not chunk.tasks:
        return []
    known = store.run(migration.find_known([task.id for task in chunk.tasks]))
    by_id = {task.id: task for task, there in zip(chunk.tasks, known, strict=True) if not there}
    account.kept += len(chunk.tasks) - len(by_id)
    return list(by_id.values())


def _make(store: Partitions, tasks: list[NewTask], account: ImportCounter) -> list[NewTask]:
    """Make tasks; return those that were not made by somebody else meanwhile."""
    replies = store.run(producing.make(tasks))
    made = [
        task for task, reply in zip(tasks, replies, strict=True) if reply.outcome is Outcome.CREATED
    ]
    account.kept += len(tasks) - len(made)
    return made


# The command that writes the tasks that wait, and series, as lines of JSON.

WAITING = (State.PENDING, State.PAUSED)


def export(
    file: Annotated[
        Path | None, typer.Argument(help="Where to; stdout if not given.", dir_okay=False)
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Write the tasks that wait, and series, as lines of JSON, each task with its due time.

    The tasks stay where they are: stop the listeners first, and do not start them again, or what
    is imported elsewhere runs twice. What moves meanwhile may be missed. Running and finished tasks
    are left out, and so are series that handlers declare: listeners declare them there, too.
    If partitions of a cluster cannot be read, the others are written, and the exit code is 3.

    Example: expirebridge export tasks.ndjson

    Example: expirebridge export --url $OLD | gzip > tasks.ndjson.gz
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store, _opened(file) as output:
        counts = store.run(Operations(settings, Hooks()).count())
        if counts.listeners:
            warn(f"{counts.listeners} listeners beat: what they run meanwhile runs elsewhere, too")
        with progress_bar("exporting", counts.pending + counts.paused) as advance:
            unreadable = 0
            for task, state in _waiting(store):
                line = transfer_files.encode(task, state)
                if line is None:
                    unreadable += 1
                else:
                    output.write(line)
                advance(1)
        for series in _scheduled(store, settings):
            line = transfer_files.encode_series(series)
            if line is None:
                warn(f"series {series.id!r}, whose record cannot be read, is left out")
            else:
                output.write(line)
        left_out = store.left_out
    if counts.running:
        warn(f"{counts.running} running tasks are left out")
    if unreadable:
        warn(f"{unreadable} tasks that cannot be read are left out")
    for text in texts_of(left_out):
        warn(f"left out: {text}")
    if left_out:
        raise typer.Exit(NOT_POSSIBLE)


def _waiting(store: Partitions) -> Iterator[tuple[Stored, State]]:
    """Every task that waits. A paused one that is resumed meanwhile comes twice, with one id."""
    for state in WAITING:
        pages = pages_commands.Pages(partial(migration.stored_page, state))
        while page := store.run(pages.next()):
            for task in page.tasks:
                yield task, state


def _scheduled(store: Partitions, settings: Settings) -> Iterator[StoredSeries]:
    """Every series that a producer scheduled."""
    pages = pages_commands.Pages(lambda cursor: series_commands.series_page(cursor, settings.lease))
    while page := store.run(pages.next()):
        for series in page.series:
            if "declared" not in series.record:
                yield series


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
