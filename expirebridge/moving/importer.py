"""Makes the groups, tasks and series of an import, whichever source they were read from."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from expirebridge.bridge import Operations
from expirebridge.hooks import Hooks
from expirebridge.moving import calls
from expirebridge.moving.calls import RestoreGroupCode
from expirebridge.series.calls import get_series
from expirebridge.series.definition import restore
from expirebridge.series.schedule import SeriesSpec
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import producing
from expirebridge.task.calls.call import Argument
from expirebridge.task.calls.producing import NewTask, Obstacle
from expirebridge.task.task import Outcome


@dataclass(frozen=True, slots=True)
class ImportedSeries:
    """A series to make, and whether it is paused."""

    spec: SeriesSpec
    made: int
    """The time it was made, in ms: intervals count from there."""
    paused: bool


@dataclass(frozen=True, slots=True)
class ImportedGroup:
    """A group to make as it was, before its members are made."""

    name: str
    members: bytes
    """What it knows of its members: see groups.lua."""
    fields: dict[str, Argument]
    """Its hash."""
    follow_up: NewTask | None
    """Its follow-up, if that was paused."""


@dataclass
class ImportChunk:
    """Groups, tasks and series to make with a few requests."""

    tasks: list[NewTask] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    """The ids of the tasks that are paused at once."""
    lanes: dict[str, list[str]] = field(default_factory=dict)
    """By id, the ordered lanes that tasks which have begun keep waiting."""
    series: list[ImportedSeries] = field(default_factory=list)
    groups: list[ImportedGroup] = field(default_factory=list)
    size: int = 0
    """By how much the progress bar advances."""


@dataclass(frozen=True)
class ImportInput:
    """The chunks of one import."""

    chunks: Iterator[ImportChunk]
    """The next one is asked for when the last one is made."""
    size: int | None
    """The length of the progress bar; None if it is not known."""
    begun: int = 0
    """The progress that an earlier import made."""


class ImportCounter(Protocol):
    """Counts the tasks of an import, and selects those to make."""

    kept: int

    def admit(self, tasks: list[NewTask]) -> list[NewTask]:
        """Select the tasks to make from those that the server does not know."""
        ...

    def add_made(self, tasks: Sequence[NewTask]) -> None:
        """Count tasks that were made, or would be."""
        ...

    def add_series(self, series: ImportedSeries, *, created: bool) -> None:
        """Count a series that was made, or would be, or that the server knows."""
        ...

    def refuse(self, id: str, reason: str) -> None:
        """Count a task, or a group, that could not be made."""
        ...


@dataclass
class LineCounts:
    """The counts of an import of lines. The server makes or knows each task and series."""

    created: int = 0
    kept: int = 0
    series_created: int = 0
    series_kept: int = 0
    groups_created: int = 0
    groups_kept: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """How many could not be made, for each reason."""

    def admit(self, tasks: list[NewTask]) -> list[NewTask]:
        """Select all: see `ImportCounter.admit`."""
        return tasks

    def add_made(self, tasks: Sequence[NewTask]) -> None:
        """See `ImportCounter.add_made`."""
        self.created += len(tasks)

    def add_series(self, series: ImportedSeries, *, created: bool) -> None:  # noqa: ARG002
        """See `ImportCounter.add_series`."""
        self.series_created += created
        self.series_kept += not created

    def refuse(self, id: str, reason: str) -> None:  # noqa: ARG002
        """See `ImportCounter.refuse`."""
        self.refused[reason] += 1


_NO_MEMBER = {
    Obstacle.NO_GROUP: "its id is that of a member of a group which is not there",
    Obstacle.GROUP_CLOSED: "its id is that of a member of a group which takes no more",
}


class Importer:
    """Makes the groups, tasks and series of an import that the server does not know."""

    def __init__(self, store: Partitions, settings: Settings, *, dry_run: bool = False) -> None:
        self._store = store
        self._settings = settings
        self._operations = Operations(settings, Hooks())
        self._dry_run = dry_run

    def run(self, chunk: ImportChunk, counter: ImportCounter) -> None:
        """Make the tasks of a chunk. A repeated import makes nothing twice."""
        new = counter.admit(self._unknown(chunk, counter))
        # Those behind them in their lanes must not begin before.
        first = [task for task in new if task.id in chunk.lanes]
        rest = [task for task in new if task.id not in chunk.lanes] if first else new
        made = first if self._dry_run or not first else self._make(first, counter)
        if chunk.lanes and not self._dry_run:
            self._store.run(calls.restore_slots(chunk.lanes))
        made = made + (rest if self._dry_run or not rest else self._make(rest, counter))
        counter.add_made(made)
        # Those that were made before an interruption may not have been paused yet.
        if chunk.paused and not self._dry_run:
            self._store.run(self._operations.pause_all(chunk.paused))

    def run_series(self, chunk: ImportChunk, counter: ImportCounter) -> None:
        """Make the series of a chunk, after its tasks."""
        lease = self._settings.lease
        for series in chunk.series:
            if self._dry_run:
                known = self._store.run(get_series(series.spec.id, lease)).series
                counter.add_series(series, created=known is None)
                continue
            restoring = restore(series.spec, made=series.made, paused=series.paused, lease=lease)
            counter.add_series(series, created=self._store.run(restoring))

    def run_groups(self, chunk: ImportChunk, counts: LineCounts) -> None:
        """Make the groups of a chunk, before its tasks."""
        for group in chunk.groups:
            code = self._store.run(
                calls.restore_group(group.name, group.members, group.fields, group.follow_up)
            )
            counts.groups_created += code is RestoreGroupCode.MADE
            counts.groups_kept += code is RestoreGroupCode.THERE
            if code is RestoreGroupCode.TAKEN:
                counts.refuse(group.name, "an unfinished task has the id of the group's follow-up")

    def _unknown(self, chunk: ImportChunk, counter: ImportCounter) -> list[NewTask]:
        """The tasks of which the server has no record, each once."""
        if not chunk.tasks:
            return []
        known = self._store.run(calls.find_known([task.id for task in chunk.tasks]))
        by_id = {task.id: task for task, there in zip(chunk.tasks, known, strict=True) if not there}
        counter.kept += len(chunk.tasks) - len(by_id)
        return list(by_id.values())

    def _make(self, tasks: list[NewTask], counter: ImportCounter) -> list[NewTask]:
        """Make tasks; leave out those that another client made meanwhile, and those refused."""
        replies = self._store.run(producing.make(tasks))
        made = [
            task
            for task, reply in zip(tasks, replies, strict=True)
            if reply.outcome is Outcome.CREATED
        ]
        refused = [
            (task.id, _NO_MEMBER[reply.obstacle])
            for task, reply in zip(tasks, replies, strict=True)
            if reply.obstacle in _NO_MEMBER
        ]
        for id, reason in refused:
            counter.refuse(id, reason)
        counter.kept += len(tasks) - len(made) - len(refused)
        return made
