"""What the overview shows, read once a while however many look at it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from expirebridge.checks import check_health
from expirebridge.checks.finding import Finding, Level, error
from expirebridge.checks.work import check_functions
from expirebridge.errors import ServerError
from expirebridge.store import calls
from expirebridge.store.calls import LastBeat
from expirebridge.task import Counts, State, to_ms
from expirebridge.web.charts import Chart, Column, bars
from expirebridge.web.site import Site

T = TypeVar("T")

PRESENT_FOR = 1.0
"""Seconds for which what was read of the present is shown to others, too."""
COURSE_FOR = 10.0

_LISTENERS = 100
_MINUTE = 60_000
_HOUR = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A listener, as the table shows it."""

    host: str
    pid: str
    name: str
    ago: float
    beats: bool
    """Whether its last beat is no older than a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """How all stands now."""

    now: datetime | None = None
    counts: Counts | None = None
    listeners: tuple[Row, ...] = ()
    alarms: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How it has gone, and what comes."""

    coming: Chart | None = None
    alarms: tuple[Finding, ...] = ()


class Overview:
    """Reads both; a reading serves all who ask within a while, so that viewers cost nothing."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.present = Shared(self._present, PRESENT_FOR)
        self.course = Shared(self._course, COURSE_FOR)

    async def _present(self) -> Present:
        site = self._site
        try:
            now = await site.now()
            counts = await site.bridge.count()
            beats = await site.store.run(calls.listeners(_LISTENERS))
            findings = await site.store.run(check_health(site.store.database, site.settings))
        except ServerError as failure:
            return Present(alarms=(error("server", str(failure), ""),))
        return Present(
            now=now,
            counts=counts,
            listeners=tuple(_row(beat, site.settings.lease) for beat in beats),
            alarms=_alarms(findings),
        )

    async def _course(self) -> Course:
        try:
            coming = await self._coming()
            findings = [await self._site.store.run(check_functions())]
        except ServerError:
            return Course()  # the present tells of it
        return Course(coming=coming, alarms=_alarms(findings))

    async def _coming(self) -> Chart:
        """When the tasks of the coming hour are due, minute by minute."""
        start = to_ms(await self._site.now()) // _MINUTE
        edges = [(start + minute) * _MINUTE for minute in range(_HOUR + 1)]
        counts = await self._site.store.run(calls.below(State.PENDING, edges))
        dues = [
            after - before for before, after in zip(counts.below, counts.below[1:], strict=False)
        ]
        columns = [
            Column(at=edge, parts=(due,), label=f"{due:,} due")
            for edge, due in zip(edges, dues, strict=False)
        ]
        return bars(columns, unit="tasks a minute", span=_MINUTE)


class Shared(Generic[T]):
    """A reading that serves all who ask for it within so many seconds."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._value: T | None = None

    async def __call__(self) -> T:
        """The reading, a new one if the last is too old."""
        async with self._lock:
            if self._value is None or time.monotonic() >= self._until:
                self._value = await self._read()
                self._until = time.monotonic() + self._seconds
            return self._value


def _row(beat: LastBeat, lease: float) -> Row:
    host, _, rest = beat.name.partition(":")
    return Row(
        host=host, pid=rest.partition(":")[0], name=beat.name, ago=beat.ago, beats=beat.ago <= lease
    )


def _alarms(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.level is not Level.OK)
