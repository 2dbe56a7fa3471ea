"""Opens another library's database, and turns its jobs into tasks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, tzinfo
from enum import StrEnum
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import redis

from expirebridge.connection import clients
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.handlers import Registry
from expirebridge.migration import ndjson
from expirebridge.migration.importer import ImportChunk, ImportInput
from expirebridge.migration.sources.arq import Arq
from expirebridge.migration.sources.bullmq import BullMQ
from expirebridge.migration.sources.celery import Celery
from expirebridge.migration.sources.job import Found, Job, JobFilter, JobSource, Refused, SkippedJob
from expirebridge.migration.sources.location import (
    failing_as_source,
    place_of,
    refuse_own_database,
    warn_of_cluster,
)
from expirebridge.migration.sources.names import Names
from expirebridge.migration.sources.report import ImportReport
from expirebridge.model import keys
from expirebridge.model.task import from_ms
from expirebridge.producer.new_task import CHUNK_TASKS
from expirebridge.settings import Settings
from expirebridge.store.commands import migration
from expirebridge.store.commands.producing import NewTask
from expirebridge.store.partitions import Partitions

logger = logging.getLogger("expirebridge")


class JobLibrary(StrEnum):
    """A library whose jobs can be imported."""

    BULLMQ = "bullmq"
    CELERY = "celery"
    ARQ = "arq"


@dataclass(frozen=True)
class JobOptions:
    """The options of --from, in the order of the command's help."""

    map: Sequence[str] = ()
    tasks: Path | None = None
    queue: Sequence[str] = ()
    source_prefix: str | None = None
    waiting: bool = False
    overdue: bool = False
    timezone: str | None = None
    dry_run: bool = False

    def given(self) -> str:
        """The name of an option that was given, or nothing."""
        names = [one.name for one in fields(self) if getattr(self, one.name)]
        return f"--{names[0].replace('_', '-')}" if names else ""


@contextmanager
def read(
    library: JobLibrary, url: str, options: JobOptions, store: Partitions, settings: Settings
) -> Iterator[tuple[ImportInput, ImportReport]]:
    """The jobs of a database to import, and the report that counts them.

    Raises InvalidSetting for a URL or an option that cannot be used, HandlersError for a folder of
    handlers, and a ServerError if the other server fails.
    """
    registry = Registry.of(settings) if options.tasks else None
    names = Names(options.map, registry)
    zone = _zone(options.timezone)
    with closing(clients.producer_client(url)) as client, failing_as_source(url):
        refuse_own_database(client, store, url)
        warn_of_cluster(client, url)
        place = f"{library} {place_of(client)} {options.source_prefix or ''}".rstrip()
        now, began = store.run(migration.note_import(place, look_only=True))
        wanted = JobFilter(
            queues=tuple(options.queue), prefix=options.source_prefix, waiting=options.waiting,
            zone=zone, now=now,
        )  # fmt: skip
        source = _SOURCES[library](client, wanted)
        size = source.count()
        if not options.dry_run:
            store.run(migration.note_import(place, look_only=False))
        report = ImportReport(
            dry_run=options.dry_run, now=now, began=0 if options.overdue else began
        )
        yield ImportInput(_chunks(source, names, report), size), report
        if unused := names.unused():
            logger.warning("no job is named %s, as --map says", ", ".join(unused))


_SOURCES: dict[JobLibrary, Callable[[redis.Redis, JobFilter], JobSource]] = {
    JobLibrary.BULLMQ: BullMQ,
    JobLibrary.CELERY: Celery,
    JobLibrary.ARQ: Arq,
}


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise InvalidSetting(f"--timezone {name}: write a zone, such as Europe/Berlin") from None


def _chunks(source: JobSource, names: Names, report: ImportReport) -> Iterator[ImportChunk]:
    for page in source.pages():
        chunk = ImportChunk()
        for found in page:
            chunk.size += 1
            if (task := _task(found, names, report)) is not None:
                chunk.tasks.append(task)
            if len(chunk.tasks) == CHUNK_TASKS:
                yield chunk
                chunk = ImportChunk()
        if chunk.size:
            yield chunk


def _task(found: Found, names: Names, report: ImportReport) -> NewTask | None:
    """The task to be made of a job, or None; then the report says why."""
    if isinstance(found, SkippedJob):
        report.add_left(found)
        return None
    try:
        func = names.function_of(found.names)
        names.check_arguments(func, found.args, found.kwargs)
        task = _new_task(found, func)
    except Refused as error:
        report.add_left(SkippedJob(found.source_id, str(error), refused=True))
        return None
    report.changes.update(found.changes)
    return task


def _new_task(job: Job, func: str) -> NewTask:
    """The task, checked as that of a line is. Raises Refused, which does not quote arguments."""
    try:
        args = keys.encode_args(job.args, job.kwargs)
    except InvalidTask:
        raise Refused(
            f"its arguments do not fit a task: at most {keys.MAX_ARGS:,} bytes of JSON, and no "
            "number beyond 64 bits"
        ) from None
    values = {
        "id": job.id, "func": func, "args": args.decode(), "due": from_ms(job.due).isoformat(),
        "attempt": job.attempt, **job.policies,
    }  # fmt: skip
    try:
        return ndjson.task_of(values).task
    except InvalidTask as error:
        raise Refused(str(error)) from None
