"""The command that makes the tasks which export wrote, or which another library has scheduled."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Protocol

import typer

from expirebridge.cli import line_file
from expirebridge.cli.intake import Chunk, Intake
from expirebridge.cli.options import BAD_INPUT, AsJson, Prefix, Url
from expirebridge.cli.output import print_counts
from expirebridge.cli.progress import progress_bar
from expirebridge.cli.stats import store_of
from expirebridge.errors import InvalidSetting
from expirebridge.hooks import Hooks
from expirebridge.migration.sources import job_import
from expirebridge.migration.sources.job_import import JobOptions, Library
from expirebridge.model.task import Outcome
from expirebridge.producer.operations import Operations
from expirebridge.series.definition import restore
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.commands import NewTask
from expirebridge.store.partitions import Partitions


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="What export wrote; - is stdin. With --from, a Redis URL."
        ),
    ],
    library: Annotated[
        Library | None,
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
    place = line_file.Place.of(file, settings)
    done = Done()
    try:
        with closing(store_of(settings)) as store, line_file.read(file, place) as intake:
            chunks = _with_series(intake.chunks, store, settings, done)
            _take_in(store, settings, replace(intake, chunks=chunks), done, dry_run=False)
    finally:
        done.print(as_json=as_json)


def _import_jobs(
    library: Library, source: str, options: JobOptions, settings: Settings, *, as_json: bool
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


class Account(Protocol):
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
        """See `Account.admit`."""
        return tasks

    def add_made(self, tasks: Sequence[NewTask]) -> None:
        """See `Account.add_made`."""
        self.created += len(tasks)

    def print(self, *, as_json: bool) -> None:
        """Print the counts, those of series only if there were any."""
        counts = {"created": self.created, "kept": self.kept}
        if self.series_created or self.series_kept:
            counts |= {"series created": self.series_created, "series kept": self.series_kept}
        print_counts(counts, as_json=as_json)


def _take_in(
    store: Partitions, settings: Settings, intake: Intake, account: Account, *, dry_run: bool
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


def _unknown(store: Partitions, chunk: Chunk, account: Account) -> list[NewTask]:
    """The tasks of which the server has no record, each once."""
    if not chunk.tasks:
        return []
    known = store.run(commands.find_known([task.id for task in chunk.tasks]))
    by_id = {task.id: task for task, there in zip(chunk.tasks, known, strict=True) if not there}
    account.kept += len(chunk.tasks) - len(by_id)
    return list(by_id.values())


def _make(store: Partitions, tasks: list[NewTask], account: Account) -> list[NewTask]:
    """Make tasks; return those that were not made by somebody else meanwhile."""
    replies = store.run(commands.make(tasks))
    made = [
        task for task, reply in zip(tasks, replies, strict=True) if reply.outcome is Outcome.CREATED
    ]
    account.kept += len(tasks) - len(made)
    return made
