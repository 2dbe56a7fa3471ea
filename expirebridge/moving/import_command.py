"""The command that reads tasks from lines of JSON, or from the jobs of other libraries."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from expirebridge.cli.ending import BAD_INPUT
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import (
    print_counts,
    print_fields,
    print_json,
    print_line,
    print_table,
    printable,
    progress_bar,
    warn,
)
from expirebridge.cli.stats import store_of
from expirebridge.errors import InvalidSetting
from expirebridge.importing import job_import
from expirebridge.importing.job_import import JobLibrary, JobOptions
from expirebridge.importing.report import ImportReport, SkippedKind
from expirebridge.moving import ndjson
from expirebridge.moving.importer import Importer, LineCounts
from expirebridge.settings import Settings
from expirebridge.task.task import from_ms

_LONGEST_REASON = 300
"""Data that is broken in many ways must not fill the screen."""


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="What export wrote; - is stdin. With --from, a URL; for rabbitmq, a file.",
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
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Also make disabled schedules, as paused series.")
    ] = False,
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

    With --from, the delayed jobs of Celery, BullMQ, arq or RabbitMQ's plugin are made as tasks, and
    the schedules of django-celery-beat or APScheduler as series. Nothing is changed there: stop its
    workers first, and delete what it stored when you have checked the result. The exit code is 2 if
    jobs were refused; all others are made.

    Example: expirebridge import tasks.ndjson --url redis://new.example:6379/1

    Example: expirebridge export --url $OLD | expirebridge import - --url $NEW

    Example: expirebridge import --from celery redis://old.example:6379/0 --map mail.tasks.send=mail.send --dry-run
    """  # noqa: E501 - an example is one line
    settings = Settings.read(url=url, prefix=prefix, tasks=tasks)
    options = JobOptions(
        map_ or [], tasks, queue or [], source_prefix, waiting, overdue, timezone, disabled, dry_run
    )
    if library is None:
        if given := options.given():
            raise InvalidSetting(f"{given}: it requires --from")
        return _import_lines(Path(source), settings, as_json=as_json)
    return _import_jobs(library, source, options, settings, as_json=as_json)


def _import_lines(file: Path, settings: Settings, *, as_json: bool) -> None:
    position = ndjson.ImportPosition.of(file, settings)
    counts = LineCounts()
    try:
        with closing(store_of(settings)) as store, ndjson.read(file, position) as lines:
            importer = Importer(store, settings)
            with progress_bar("importing", lines.size, done=lines.begun) as advance:
                for chunk in lines.chunks:
                    importer.run_groups(chunk, counts)
                    importer.run(chunk, counts)
                    importer.run_series(chunk, counts)
                    advance(chunk.size)
    finally:
        _print_counts(counts, as_json=as_json)
    for reason, count in counts.refused.items():
        warn(f"{count} refused: {reason}")
    if counts.refused:
        raise typer.Exit(BAD_INPUT)


def _import_jobs(
    library: JobLibrary, source: str, options: JobOptions, settings: Settings, *, as_json: bool
) -> None:
    with (
        closing(store_of(settings)) as store,
        job_import.read(library, source, options, store, settings) as (jobs, report),
    ):
        try:
            importer = Importer(store, settings, dry_run=options.dry_run)
            with progress_bar("importing", jobs.size) as advance:
                for chunk in jobs.chunks:
                    importer.run(chunk, report)
                    importer.run_series(chunk, report)
                    advance(chunk.size)
        finally:
            _print_report(report, as_json=as_json)
    if report.refused:
        raise typer.Exit(BAD_INPUT)


def _print_counts(counted: LineCounts, *, as_json: bool) -> None:
    """Print the counts, those of series and groups only if there were any."""
    counts = {"created": counted.created, "kept": counted.kept}
    if counted.series_created or counted.series_kept:
        counts |= {"series created": counted.series_created, "series kept": counted.series_kept}
    if counted.groups_created or counted.groups_kept:
        counts |= {"groups created": counted.groups_created, "groups kept": counted.groups_kept}
    print_counts(counts, as_json=as_json)


def _print_report(report: ImportReport, *, as_json: bool) -> None:
    if as_json:
        return print_json(_report_as_data(report))
    print_fields((name, f"{number:,}") for name, number in report.counts.items())
    if report.functions:
        print_line()
        print_table(
            ("function", "tasks", "first due", "last due"),
            [
                (func, f"{made.count:,}", _shown(made.first), _shown(made.last))
                for func, made in sorted(report.functions.items())
            ],
        )
    if report.series:
        print_line()
        print_table(
            ("series", "function", "schedule", "first tick"),
            [
                (one.id, one.func, one.schedule, "paused" if one.paused else _tick(one.next))
                for one in report.series
            ],
        )
    for title, reason, kind in _reasons(report):
        more = ", ..." if kind.count > len(kind.ids) else ""
        print_line(f"{title} {kind.count:,}: {reason} ({', '.join(map(_escaped, kind.ids))}{more})")
    for change, count in report.changes.items():
        print_line(f"changed {count:,}: {change}")
    return None


def _report_as_data(report: ImportReport) -> dict[str, Any]:
    return {
        **{name.replace(" ", "_"): number for name, number in report.counts.items()},
        "functions": {
            func: {
                "tasks": made.count,
                "first_due": from_ms(made.first),
                "last_due": from_ms(made.last),
            }
            for func, made in sorted(report.functions.items())
        },
        "series": [
            {
                "series": one.id,
                "function": one.func,
                "schedule": one.schedule,
                "first_tick": None if one.next is None else from_ms(one.next),
                "paused": one.paused,
            }
            for one in report.series
        ],
        "reasons": [
            {
                "end": title,
                "reason": reason,
                "jobs": kind.count,
                "ids": [_escaped(id) for id in kind.ids],
            }
            for title, reason, kind in _reasons(report)
        ],
        "changes": dict(report.changes),
    }


def _reasons(report: ImportReport) -> Iterator[tuple[str, str, SkippedKind]]:
    """The reasons for which jobs were left or refused, printable."""
    for title, kinds in (("left", report.left), ("refused", report.refused)):
        for reason, kind in kinds.items():
            yield title, _escaped(reason), kind


def _escaped(text: str) -> str:
    """A text from another database, which must not control a terminal, nor fill it."""
    return printable(text)[:_LONGEST_REASON]


def _tick(moment: int | None) -> str:
    return "none" if moment is None else _shown(moment)


def _shown(due: int) -> str:
    return from_ms(due).isoformat(timespec="seconds").replace("+00:00", "Z")
