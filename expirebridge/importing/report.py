"""Counts the jobs of an import by result: each is created, kept, left or refused."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from expirebridge.importing.job import SkippedJob
from expirebridge.moving.importer import ImportedSeries
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.task import from_ms

_SHOWN_IDS = 3
_LONGEST = 300
_MOST_REASONS = 50
"""Data that is broken in many ways must not fill the memory."""


@dataclass(slots=True)
class ImportedFunction:
    """The tasks of one function."""

    count: int = 0
    first: int = 2**63
    last: int = 0

    def add(self, due: int) -> None:
        """Count one, due at this ms."""
        self.count += 1
        self.first, self.last = min(self.first, due), max(self.last, due)


@dataclass(slots=True)
class SkippedKind:
    """Jobs that were left for one reason."""

    count: int = 0
    ids: list[str] = field(default_factory=list)
    """The first of them."""


@dataclass(frozen=True, slots=True)
class ReportedSeries:
    """A series that was made, or would be."""

    id: str
    func: str
    schedule: str
    """As people read it."""
    next: int | None
    """The first tick, in ms since 1970."""
    paused: bool


@dataclass
class ImportReport:
    """The counts of an import."""

    dry_run: bool
    now: int
    """In ms since 1970."""
    began: int
    """The start of an earlier import from there, in ms since 1970; 0 if that is ignored."""
    kept: int = 0
    functions: dict[str, ImportedFunction] = field(default_factory=dict)
    series: list[ReportedSeries] = field(default_factory=list)
    left: dict[str, SkippedKind] = field(default_factory=dict)
    refused: dict[str, SkippedKind] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)

    def admit(self, tasks: list[NewTask]) -> list[NewTask]:
        """Leave what is overdue if an earlier import may have made it, and its record is gone."""
        if not self.began:
            return tasks
        doubtful = [task for task in tasks if task.when.ms <= self.now]
        for task in doubtful:
            self.add_left(
                SkippedJob(
                    task.id,
                    "overdue, and may have run since the import that began at "
                    f"{_shown(self.began)}; --overdue makes them",
                )
            )
        return [task for task in tasks if task.when.ms > self.now]

    def add_made(self, tasks: Sequence[NewTask]) -> None:
        """Count tasks that were made, or would be."""
        for task in tasks:
            func = task.call.partition(b"?")[0].decode()
            self.functions.setdefault(func, ImportedFunction()).add(task.when.ms)

    def add_series(self, series: ImportedSeries, *, created: bool) -> None:
        """See `ImportCounter.add_series`."""
        if not created:
            self.kept += 1
            return
        spec = series.spec
        first = spec.schedule.next_after(self.now, created=self.now)
        self.series.append(
            ReportedSeries(spec.id, spec.func, str(spec.schedule), first, series.paused)
        )

    def refuse(self, id: str, reason: str) -> None:
        """See `ImportCounter.refuse`."""
        self.add_left(SkippedJob(id, reason, refused=True))

    def add_left(self, one: SkippedJob) -> None:
        """Count a job that stays where it is."""
        kinds = self.refused if one.refused else self.left
        reason, id = one.reason[:_LONGEST], one.source_id[:_LONGEST]
        if reason not in kinds and len(kinds) >= _MOST_REASONS:
            reason = "other reasons"
        kind = kinds.setdefault(reason, SkippedKind())
        kind.count += one.count
        if len(kind.ids) < _SHOWN_IDS and id not in kind.ids:
            kind.ids.append(id)

    @property
    def counts(self) -> dict[str, int]:
        """The number of jobs by result."""
        created = "would create" if self.dry_run else "created"
        return {
            created: sum(made.count for made in self.functions.values()) + len(self.series),
            "kept": self.kept,
            "left": sum(kind.count for kind in self.left.values()),
            "refused": sum(kind.count for kind in self.refused.values()),
        }


def _shown(due: int) -> str:
    return from_ms(due).isoformat(timespec="seconds").replace("+00:00", "Z")
