"""Finds series where they are: in Redis, or beside it, where another capability keeps some."""

from typing import Any, Protocol, TypeGuard, cast

from expirebridge.capabilities import given
from expirebridge.series.merged_listing import cursors_in, joined
from expirebridge.series.values import Series, SeriesListing
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.task import Change


class SeriesPlace(Protocol):
    """Keeps series: a Bridge, or a ledger."""

    def list_series(self, *, limit: int, cursor: str | None) -> SeriesListing:
        """Return a page of the series."""
        ...

    def get_series(self, id: str) -> Series | None:
        """Return a series; None if there is none."""
        ...

    def pause_series(self, id: str) -> Change:
        """Let a series make no ticks."""
        ...

    def resume_series(self, id: str) -> Change:
        """Let a paused series go on."""
        ...

    def run_series(self, id: str) -> Any:
        """Make one more tick, due now; None if there is no such series."""
        ...

    def unschedule(self, id: str) -> Change:
        """Remove a series."""
        ...


class AsyncSeriesPlace(Protocol):
    """Keeps series, for pages: an AsyncBridge, or a ledger."""

    async def list_series(self, *, limit: int, cursor: str | None) -> SeriesListing:
        """Return a page of the series."""
        ...

    async def get_series(self, id: str) -> Series | None:
        """Return a series; None if there is none."""
        ...

    async def pause_series(self, id: str) -> Change:
        """Let a series make no ticks."""
        ...

    async def resume_series(self, id: str) -> Change:
        """Let a paused series go on."""
        ...

    async def run_series(self, id: str) -> object | None:
        """Make one more tick, due now; None if there is no such series."""
        ...


class GivesSeries(Protocol):
    """The module `series_place` of a capability that keeps series."""

    def place_of(self, settings: Settings) -> SeriesPlace | None:
        """Return what keeps them by these settings; None if they name nothing that does."""

    def place_for_pages(self, settings: Settings) -> AsyncSeriesPlace | None:
        """Return the same, to be awaited."""

    def is_in_use(self) -> Steps[bool]:
        """Return whether this database of Redis has tasks of series that are kept there."""


def place_beside(settings: Settings) -> SeriesPlace | None:
    """Return what keeps series beside Redis, by these settings."""
    places = (one.place_of(settings) for one in _given())
    return next((place for place in places if place is not None), None)


def awaited_place_beside(settings: Settings) -> AsyncSeriesPlace | None:
    """Return the same, to be awaited."""
    places = (one.place_for_pages(settings) for one in _given())
    return next((place for place in places if place is not None), None)


def is_one_in_use() -> Steps[bool]:
    """Return whether series of this database are kept beside Redis, too."""
    for one in _given():
        if (yield from one.is_in_use()):
            return True
    return False


def _given() -> tuple[GivesSeries, ...]:
    return cast("tuple[GivesSeries, ...]", given("series_place"))


class AllSeries:
    """The series of both places; of two with one id, that beside Redis is meant."""

    def __init__(self, here: SeriesPlace, there: SeriesPlace | None) -> None:
        self._here, self._there = here, there

    def get(self, id: str) -> Series | None:
        """Return the series of this id."""
        found = self._there.get_series(id) if self._there is not None else None
        return found or self._here.get_series(id)

    def list(self, limit: int, cursor: str | None) -> SeriesListing:
        """Return a page of all: up to so many of Redis, and as many of the others."""
        if self._there is None:
            return self._here.list_series(limit=limit, cursor=cursor)
        here, there = cursors_in(cursor)
        return joined(
            None if here == "" else self._here.list_series(limit=limit, cursor=here),
            None if there == "" else self._there.list_series(limit=limit, cursor=there),
        )

    def pause(self, id: str) -> Change:
        """Pause a series: it makes no ticks."""
        found = self._there.pause_series(id) if self._there is not None else None
        return found if _is_there(found) else self._here.pause_series(id)

    def resume(self, id: str) -> Change:
        """Resume a paused series."""
        found = self._there.resume_series(id) if self._there is not None else None
        return found if _is_there(found) else self._here.resume_series(id)

    def run(self, id: str) -> Any:
        """Make one more tick; returns its task, wherever that is."""
        found = self._there.run_series(id) if self._there is not None else None
        return found or self._here.run_series(id)

    def remove(self, id: str) -> Change:
        """Remove a series."""
        found = self._there.unschedule(id) if self._there is not None else None
        return found if _is_there(found) else self._here.unschedule(id)


def _is_there(change: Change | None) -> TypeGuard[Change]:
    return change not in {None, Change.NOT_FOUND}
