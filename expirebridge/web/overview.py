"""Reads the figures of the overview, at intervals that do not depend on the number of viewers."""

import asyncio
import functools
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from expirebridge.checks import MAX_OVERDUE, check_health
from expirebridge.checks.capability_checks import checks_on
from expirebridge.checks.finding import Finding, Level, Occasion, error
from expirebridge.errors import ServerError, ServerUnreachable
from expirebridge.observe.recent_tasks import FunctionStatistics, read_recent
from expirebridge.task.calls import inspection
from expirebridge.task.calls.fleet import Fleet, read_fleet
from expirebridge.task.calls.inspection import (
    FunctionSurvey,
    Health,
    LastBeat,
    Span,
    late_seconds,
    objective_results,
)
from expirebridge.task.durations import human
from expirebridge.task.lateness import words_of
from expirebridge.task.listings import Counts, LeftOut, texts_of
from expirebridge.task.objective import ObjectiveResult
from expirebridge.task.task import State, to_ms
from expirebridge.task.texts import plural
from expirebridge.web.charts import Chart, Column, bars, decades
from expirebridge.web.context import PageContext

# The number of overdue tasks, and its rate of change.

_WINDOW = 15.0
"""Seconds over which the change is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The tasks that are overdue."""

    overdue: int
    waited: float
    """Seconds for which the first of them has waited."""
    per_second: float | None
    """Tasks by which it grows each second; negative: it drains. None: not known yet."""

    def __str__(self) -> str:
        """A sentence about the backlog, and one about its change."""
        tasks = plural(self.overdue, "task is", "tasks are")
        return f"{tasks} overdue, the first for {human(self.waited)}. {self._change()}"

    def _change(self) -> str:
        if self.per_second is None:
            return "How fast they drain is known in a moment."
        if self.per_second == 0:
            return "The backlog stays as it is."
        if self.per_second > 0:
            return f"The backlog grows by {_rate(self.per_second)}."
        gone = human(self.overdue / -self.per_second)
        return f"The backlog drains by {_rate(-self.per_second)}: gone in about {gone}."


class Readings:
    """The number of overdue tasks in each reading of the last seconds."""

    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque()

    def note(self, at: float, overdue: int) -> None:
        """Add a reading, taken at that second."""
        self._taken.append((at, overdue))
        while at - self._taken[0][0] > _WINDOW:
            self._taken.popleft()

    @property
    def per_second(self) -> float | None:
        """The change from the first reading to the last; None if there is only one."""
        (began, before), (ended, after) = self._taken[0], self._taken[-1]
        return (after - before) / (ended - began) if ended > began else None


def _rate(per_second: float) -> str:
    if per_second >= 10:
        return f"{per_second:,.0f} a second"
    return f"{per_second * 60:,.0f} a minute"


T = TypeVar("T")
Look = Callable[[], Awaitable[Sequence[Finding]]]
"""Returns findings of a capability."""

PRESENT_FOR = 1.0
"""For how many seconds a reading of the present is shown to other viewers, too."""
COURSE_FOR = 10.0

_LISTENERS = 100
_SURVEYED = 1000
_MINUTE = 60_000
_HOUR = 60

SPANS = {"hour": (60, 1), "day": (96, 15)}
"""The spans that charts of the past can show: the number of columns, and the minutes of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRow:
    """A listener in the table."""

    host: str
    pid: str
    name: str
    ago: float
    beats: bool
    """True if its last beat is at most a lease old."""
    idle: str | None
    """Why it claims nothing; None if it claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentState:
    """The present figures, listeners and alarms."""

    now: datetime | None = None
    counts: Counts | None = None
    listeners: tuple[ListenerRow, ...] = ()
    survey: FunctionSurvey | None = None
    backlog: Backlog | None = None
    """None if nothing is overdue."""
    alarms: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Charts of the recent past and of the coming hour."""

    coming: Chart | None = None
    throughput: Chart | None = None
    lateness: Chart | None = None
    causes: tuple[tuple[str, float], ...] = ()
    """Why attempts began late in this time, and by how many seconds in all, most first."""
    objectives: tuple[ObjectiveResult, ...] = ()
    """How functions kept to their objectives in this time, the worst first."""
    functions: tuple[tuple[str, FunctionStatistics], ...] = ()
    """Recent results of each function, those that failed most first."""
    alarms: tuple[Finding, ...] = ()


class Overview:
    """Reads the present state and the charts. One reading serves all viewers for some seconds."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._looks: list[Look] = []
        self._readings = Readings()
        self.present = Shared(self._present, PRESENT_FOR)
        self._courses = {
            name: Shared(functools.partial(self._course, *span), COURSE_FOR)
            for name, span in SPANS.items()
        }
        self.survey = Shared(self._read_survey, COURSE_FOR)
        self._functions = Shared(self._read_functions, COURSE_FOR)

    def ask_too(self, look: Look) -> None:
        """Show these findings, too."""
        self._looks.append(look)

    async def _present(self) -> CurrentState:
        context = self._context
        try:
            now = await context.now()
            counts = await context.bridge.count()
            health = await context.store.run(inspection.read_health(context.settings.lease))
            survey = await self.survey()
            beats = await context.store.run(inspection.list_listeners(_LISTENERS))
            known = await context.store.run(read_fleet(context.settings.lease))
            findings = await context.store.run(
                check_health(context.store.database, context.settings)
            )
            told = await self._made_on(Occasion.PRESENT)
        except ServerError as failure:
            return CurrentState(alarms=(error("server", str(failure), ""),))
        return CurrentState(
            now=now,
            counts=counts,
            listeners=tuple(_row(beat, known, context.settings.lease) for beat in beats),
            survey=survey,
            backlog=self._backlog(health, now),
            alarms=(
                *_left_out(self._context.store.left_out),
                *told,
                *_alarms(findings),
            ),
        )

    async def _made_on(self, occasion: Occasion) -> list[Finding]:
        """The findings of what capabilities check on this occasion."""
        found = list[Finding]()
        for one in checks_on(occasion, self._context.settings, MAX_OVERDUE):
            found += await self._context.store.run(one.look)
        return found

    def _backlog(self, health: Health, now: datetime) -> Backlog | None:
        self._readings.note(now.timestamp(), health.overdue)
        if not health.overdue:
            return None
        return Backlog(
            overdue=health.overdue, waited=health.waited, per_second=self._readings.per_second
        )

    async def course(self, query: Mapping[str, str]) -> Course:
        """The charts of the span that the query names."""
        return await self._courses[span_in(query)]()

    async def _course(self, spans: int, minutes: int) -> Course:
        try:
            coming = await self._coming()
            past = await self._context.store.run(
                inspection.read_tally(spans=spans, minutes=minutes)
            )
            functions = await self._functions()
            findings = await self._made_on(Occasion.COURSE)
            for look in self._looks:
                findings += await look()
        except ServerUnreachable:
            return Course()  # the present reports it
        except ServerError as failure:
            return Course(alarms=(error("course", str(failure), ""),))
        return Course(
            coming=coming,
            throughput=_throughput(past, minutes),
            lateness=_lateness(past, minutes),
            causes=tuple((words_of(cause), late) for cause, late in late_seconds(past).items()),
            objectives=tuple(objective_results(past)),
            functions=functions,
            alarms=_alarms(findings),
        )

    async def function_names(self) -> list[str]:
        """The functions of the tasks that are due next, and of those that ended last."""
        ended = await self._functions()
        coming = await self.survey()
        return sorted({name for name, _ in ended} | set(coming.functions))

    async def _read_survey(self) -> FunctionSurvey:
        return await self._context.store.run(inspection.survey_functions(_SURVEYED))

    async def _read_functions(self) -> tuple[tuple[str, FunctionStatistics], ...]:
        recent = await self._context.store.run(read_recent(self._context.operations))
        # Functions that need attention come first, then the most frequent ones.
        return tuple(
            sorted(
                recent.functions().items(),
                key=lambda row: (-row[1].failed, -row[1].succeeded, row[0]),
            )
        )

    async def _coming(self) -> Chart:
        """A chart of the tasks due in each minute of the coming hour."""
        start = to_ms(await self._context.now()) // _MINUTE
        edges = [(start + minute) * _MINUTE for minute in range(_HOUR + 1)]
        counts = await self._context.store.run(inspection.count_before(State.PENDING, edges))
        dues = [
            after - before for before, after in zip(counts.before, counts.before[1:], strict=False)
        ]
        columns = [
            Column(at=edge, parts=(due,), label=f"{due:,} due")
            for edge, due in zip(edges, dues, strict=False)
        ]
        return bars(columns, unit="tasks a minute", span=_MINUTE)


def span_in(query: Mapping[str, str]) -> str:
    """The span that a query asks for, or the first one."""
    return name if (name := query.get("span", "")) in SPANS else next(iter(SPANS))


def _throughput(past: list[Span], minutes: int) -> Chart:
    """A chart of attempts that ended per minute, by result."""
    columns = [
        Column(
            at=span.at,
            parts=tuple(ended / minutes for ended in (span.succeeded, span.retried, span.failed)),
            label=f"{span.succeeded:,} succeeded, {span.retried:,} to be retried, "
            f"{span.failed:,} failed",
        )
        for span in past
    ]
    return bars(columns, unit="attempts a minute", span=minutes * _MINUTE)


def _lateness(past: list[Span], minutes: int) -> Chart:
    """A chart of the lateness of attempts."""
    columns = []
    for span in past:
        half, most = span.quantile(0.5), span.quantile(0.99)
        label = "nothing started"
        if half is not None and most is not None:
            label = f"half {_within(half)}, 99 % {_within(most)}"
        columns.append(Column(at=span.at, parts=(most or 0, half or 0), label=label))
    return decades(columns, unit="from due to start", span=minutes * _MINUTE)


def _within(ms: float) -> str:
    return f"within {human(ms / 1000)}" if math.isfinite(ms) else "after more than 10m"


class Shared(Generic[T]):
    """A reading that serves all callers for some seconds."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._value: T | None = None

    async def __call__(self) -> T:
        """Return the last reading, or a new one if that is too old."""
        async with self._lock:
            if self._value is None or time.monotonic() >= self._until:
                self._value = await self._read()
                self._until = time.monotonic() + self._seconds
            return self._value


def _row(beat: LastBeat, known: Fleet, lease: float) -> ListenerRow:
    host, _, rest = beat.name.partition(":")
    return ListenerRow(
        host=host, pid=rest.partition(":")[0], name=beat.name, ago=beat.ago,
        beats=beat.ago <= lease,
        idle=next((one.idle for one in known.listeners if one.name == beat.name), None),
    )  # fmt: skip


def _left_out(partitions: Sequence[LeftOut]) -> Iterator[Finding]:
    """Findings about partitions whose tasks are missing from the overview."""
    for text in texts_of(partitions):
        yield error("partitions", f"left out of all that is shown here: {text}", "")


def _alarms(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.level in {Level.WARNING, Level.ERROR})
