"""Opens the source of another library's jobs, and turns these into tasks and series."""

import difflib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, tzinfo
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import redis

from expirebridge.connection import clients
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.handlers import Registry
from expirebridge.handlers.signatures import Shape
from expirebridge.importing import sql_source
from expirebridge.importing.apscheduler import APScheduler
from expirebridge.importing.arq import Arq
from expirebridge.importing.bullmq import BullMQ
from expirebridge.importing.celery import Celery
from expirebridge.importing.django_celery_beat import DjangoCeleryBeat
from expirebridge.importing.job import (
    Found,
    Job,
    JobFilter,
    JobSource,
    RecurringJob,
    Refused,
    SkippedJob,
)
from expirebridge.importing.rabbitmq import CountedLines, RabbitMQ
from expirebridge.importing.redis_source import (
    address_of,
    failing_as_source,
    refuse_own_database,
    warn_of_cluster,
)
from expirebridge.importing.report import ImportReport
from expirebridge.moving import calls as migration
from expirebridge.moving import ndjson
from expirebridge.moving.importer import ImportChunk, ImportedSeries, ImportInput
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task import keys
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.new_task import CHUNK_TASKS
from expirebridge.task.task import from_ms


class FunctionMap:
    """Which function of ours a job calls, whose name is one of the other library.

    `pairs` are the values of --map. With a registry, the function must be one of its handlers,
    and its signature must fit the arguments.
    Raises InvalidSetting for a pair that is not old=new, InvalidTask for a new name that is none.
    """

    def __init__(self, pairs: Sequence[str], registry: Registry | None) -> None:
        self._map: dict[str, str] = {}
        self._registry = registry
        self._unused: set[str] = set()
        self._shapes: dict[str, Shape] = {}
        for pair in pairs:
            # A name of the other library may hold a =, and a name of ours does not.
            old, equals, new = pair.rpartition("=")
            if not equals or not old:
                raise InvalidSetting(
                    f"--map {pair}: write old=new, such as mail.tasks.send=mail.send"
                )
            if old in self._map:
                raise InvalidSetting(f"--map {pair}: {old} is mapped to {self._map[old]} already")
            self._map[old] = keys.check_func(new)
            self._unused.add(old)
            if registry and registry.find(new) is None:
                raise InvalidSetting(
                    f"--map {pair}: there is no handler {new}{registry.suggest(new)}"
                )

    def function_of(self, names: Sequence[str]) -> str:
        """The function for a job. Raises Refused if there is none, with what to do."""
        for name in names:
            if name in self._map:
                self._unused.discard(name)
                return self._map[name]
        name = names[0]
        try:
            keys.check_func(name)
        except InvalidTask:
            raise Refused(
                f"{name} is not a function here: --map {name}={self._near(name)}"
            ) from None
        if self._registry and self._registry.find(name) is None:
            raise Refused(f"there is no handler {name}: --map {name}={self._near(name)}")
        return name

    def check_arguments(self, func: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise Refused if the handler cannot be called with so many arguments of these names."""
        handler = self._registry.find(func) if self._registry else None
        if handler is None:
            return
        if func not in self._shapes:
            self._shapes[func] = Shape.of(handler.function)
        shape = self._shapes[func]
        if shape.known and (misfit := shape.fits(len(args), tuple(sorted(kwargs)))) is not None:
            raise Refused(f"{func}{shape}: {misfit}")

    def unused(self) -> list[str]:
        """The mapped names that no job had: mistyped, perhaps."""
        return sorted(self._unused)

    def _near(self, name: str) -> str:
        """Suggestions for a name."""
        words = [re.sub(r"\W", "_", word, flags=re.ASCII) for word in name.split(".")]
        if self._registry is None:
            return ".".join(words[-2:]) if len(words) > 1 else f"module.{words[0]}"
        handlers = [handler.name for handler in self._registry]
        same = [handler for handler in handlers if handler.rpartition(".")[2] == words[-1]]
        return (same or difflib.get_close_matches(name, handlers, n=1) or ["module.function"])[0]


logger = logging.getLogger("expirebridge")


class JobLibrary(StrEnum):
    """A library whose jobs can be imported."""

    BULLMQ = "bullmq"
    CELERY = "celery"
    ARQ = "arq"
    RABBITMQ = "rabbitmq"
    DJANGO_CELERY_BEAT = "django-celery-beat"
    APSCHEDULER = "apscheduler"


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
    disabled: bool = False
    dry_run: bool = False

    def given(self) -> str:
        """The name of an option that was given, or nothing."""
        names = [one.name for one in fields(self) if getattr(self, one.name)]
        return f"--{names[0].replace('_', '-')}" if names else ""


@contextmanager
def read(
    library: JobLibrary, source: str, options: JobOptions, store: Partitions, settings: Settings
) -> Iterator[tuple[ImportInput, ImportReport]]:
    """The jobs of a source to import, and the report that counts them.

    Raises InvalidSetting for a source or an option that cannot be used, HandlersError for a folder
    of handlers, and a ServerError if the other server fails.
    """
    registry = Registry.of(settings) if options.tasks else None
    names = FunctionMap(options.map, registry)
    zone = _zone(options.timezone)
    _check_options(library, options)
    with _OPEN[library](source, store) as (where, source_of):
        place = f"{library} {where} {options.source_prefix or ''}".rstrip()
        now, began = store.run(migration.note_import(place, look_only=True))
        wanted = JobFilter(
            queues=tuple(options.queue), prefix=options.source_prefix, waiting=options.waiting,
            disabled=options.disabled, zone=zone, now=now,
        )  # fmt: skip
        jobs = source_of(wanted)
        size = jobs.count()
        if not options.dry_run:
            store.run(migration.note_import(place, look_only=False))
        report = ImportReport(
            dry_run=options.dry_run, now=now, began=0 if options.overdue else began
        )
        yield ImportInput(_chunks(jobs, names, report), size), report
        if unused := names.unused():
            logger.warning("no job is named %s, as --map says", ", ".join(unused))


# Where jobs are: in a database of Redis, in a SQL database, or in a file.

SourceOf = Callable[[JobFilter], JobSource]


@contextmanager
def _in_redis(
    kind: Callable[[redis.Redis, JobFilter], JobSource], url: str, store: Partitions
) -> Iterator[tuple[str, SourceOf]]:
    with closing(clients.producer_client(url)) as client, failing_as_source(url):
        refuse_own_database(client, store, url)
        warn_of_cluster(client, url)
        yield address_of(client), partial(kind, client)


@contextmanager
def _in_sql(
    kind: Callable[[Any, JobFilter], JobSource], url: str, _: Partitions
) -> Iterator[tuple[str, SourceOf]]:
    with sql_source.connected(url) as connection:
        yield sql_source.address_of(connection.engine.url), partial(kind, connection)


@contextmanager
def _in_a_file(
    kind: Callable[[CountedLines, JobFilter], JobSource], file: str, _: Partitions
) -> Iterator[tuple[str, SourceOf]]:
    yield str(Path(file).resolve()), partial(kind, CountedLines(Path(file)))


_OPEN: dict[
    JobLibrary,
    Callable[[str, Partitions], AbstractContextManager[tuple[str, SourceOf]]],
] = {
    JobLibrary.BULLMQ: partial(_in_redis, BullMQ),
    JobLibrary.CELERY: partial(_in_redis, Celery),
    JobLibrary.ARQ: partial(_in_redis, Arq),
    JobLibrary.RABBITMQ: partial(_in_a_file, RabbitMQ),
    JobLibrary.DJANGO_CELERY_BEAT: partial(_in_sql, DjangoCeleryBeat),
    JobLibrary.APSCHEDULER: partial(_in_sql, APScheduler),
}
_SCHEDULES = {JobLibrary.DJANGO_CELERY_BEAT, JobLibrary.APSCHEDULER}


def _check_options(library: JobLibrary, options: JobOptions) -> None:
    """Raise InvalidSetting for an option that means nothing for this library."""
    if options.disabled and library not in _SCHEDULES:
        raise InvalidSetting(f"--disabled: it is for {' and '.join(sorted(_SCHEDULES))}")
    if library in _SCHEDULES or library is JobLibrary.RABBITMQ:
        for name in ("queue", "source_prefix", "waiting"):
            if getattr(options, name):
                raise InvalidSetting(f"--{name.replace('_', '-')}: it is not for {library}")


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise InvalidSetting(f"--timezone {name}: write a zone, such as Europe/Berlin") from None


def _chunks(source: JobSource, names: FunctionMap, report: ImportReport) -> Iterator[ImportChunk]:
    for page in source.pages():
        chunk = ImportChunk()
        for found in page:
            chunk.size += 1
            made = _made(found, names, report)
            if isinstance(made, ImportedSeries):
                chunk.series.append(made)
            elif made is not None:
                chunk.tasks.append(made)
            if len(chunk.tasks) == CHUNK_TASKS:
                yield chunk
                chunk = ImportChunk()
        if chunk.size:
            yield chunk


def _made(
    found: Found, names: FunctionMap, report: ImportReport
) -> NewTask | ImportedSeries | None:
    """What is to be made of a job, or None; then the report says why."""
    if isinstance(found, SkippedJob):
        report.add_left(found)
        return None
    try:
        func = names.function_of(found.names)
        names.check_arguments(func, found.args, found.kwargs)
        made = _new_task(found, func) if isinstance(found, Job) else _new_series(found, func)
    except Refused as error:
        report.add_left(SkippedJob(found.source_id, str(error), refused=True))
        return None
    report.changes.update(found.changes)
    return made


def _new_task(job: Job, func: str) -> NewTask:
    """The task, checked as that of a line is. Raises Refused, which does not quote arguments."""
    values = {
        "id": job.id, "func": func, "args": _args_of(job), "due": from_ms(job.due).isoformat(),
        "attempt": job.attempt, **job.policies,
    }  # fmt: skip
    try:
        return ndjson.task_of(values).task
    except InvalidTask as error:
        raise Refused(str(error)) from None


def _new_series(job: RecurringJob, func: str) -> ImportedSeries:
    """The series, checked as that of a line is. Raises Refused, as `_new_task` does."""
    values = {
        "series": job.id, "func": func, "args": _args_of(job), "schedule": job.schedule,
        "paused": job.paused, **job.policies,
    }  # fmt: skip
    try:
        return ndjson.series_of(values)
    except InvalidTask as error:
        raise Refused(str(error)) from None


def _args_of(job: Job | RecurringJob) -> str:
    try:
        return keys.encode_args(job.args, job.kwargs).decode()
    except InvalidTask:
        raise Refused(
            f"its arguments do not fit a task: at most {keys.MAX_ARGS:,} bytes of JSON, and no "
            "number beyond 64 bits"
        ) from None
