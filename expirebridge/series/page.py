"""The pages of series: the list of them, one with its latest tasks, and what is done to one."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from expirebridge.bridge import Operations
from expirebridge.errors import InvalidTask, LedgerError
from expirebridge.series.fields import FIELDS, series_of_tick
from expirebridge.series.merged_listing import cursors_in, joined
from expirebridge.series.places import AsyncSeriesPlace, awaited_place_beside
from expirebridge.series.schedule import check_series_id
from expirebridge.series.values import Series, SeriesListing
from expirebridge.task.calls.call import PARTITIONS, Steps
from expirebridge.task.fields import on_page, values_of
from expirebridge.task.listings import texts_of
from expirebridge.task.task import Change, State, Task, to_ms
from expirebridge.web.actions import READ_ONLY, carry_out, read_form
from expirebridge.web.capability_pages import CapabilityPages
from expirebridge.web.context import Entry, PageContext, redirect
from expirebridge.web.overview import Overview
from expirebridge.web.search import ids_in, lean

# Finds the tasks of one series, among all others.

MOST_TICKS = 20
"""Rows of a page of one series."""
MOST_LOOKED_AT = 10_000
"""Ids of each state that are looked at, at most: those that are due next, or ended last."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """Tasks of a series, the latest tick first."""

    tasks: list[Task]
    are_all_seen: bool
    """Whether all ids were looked at, or as many were found as a page shows."""


def ticks_of(series: str, operations: Operations) -> Steps[Ticks]:
    """Find the latest ticks of a series that are known; a record is read of each only."""
    count = yield from PARTITIONS
    tasks: dict[str, Task] = {}
    all_seen = True
    for state in State:
        for number in range(count):
            most = max(MOST_LOOKED_AT // count, 1)
            ids, _, seen = yield from ids_in(f"{series}@", state, number, most, MOST_TICKS)
            all_seen &= seen or len(ids) >= MOST_TICKS
            for id in ids:
                task = yield from operations.get(id)
                # The id of another series may begin so as well.
                if task is not None and series_of_tick(task) == series:
                    tasks[id] = lean(task)
    latest = sorted(tasks.values(), key=lambda task: task.tick or task.due, reverse=True)
    return Ticks(latest[:MOST_TICKS], all_seen)


# The actions on one series.

SERIES_CHOICES = {"run": "Run now", "pause": "Pause", "resume": "Resume"}
"""The actions on a series, by the words of `expirebridge series`, and their labels."""


def actions_on(series: Series) -> dict[str, str]:
    """Those that make sense for a series as it is, with their labels."""
    left_out = "resume" if series.paused is None else "pause"
    return {name: label for name, label in SERIES_CHOICES.items() if name != left_out}


@dataclass(frozen=True, slots=True)
class SeriesOrder:
    """An action on one series."""

    name: str
    id: str

    @classmethod
    def read(cls, form: Mapping[str, str]) -> "SeriesOrder":
        """Read a form. Raises InvalidTask for an invalid one."""
        name, id = form.get("action", ""), check_series_id(form.get("id", "").strip())
        if name not in SERIES_CHOICES:
            raise InvalidTask(f"action: one of {', '.join(SERIES_CHOICES)}")
        return cls(name, id)

    async def carry_out(self, place: AsyncSeriesPlace) -> Mapping[Change, int]:
        """Carry it out; return the result, as the actions on tasks do."""
        match self.name:
            case "pause":
                return {await place.pause_series(self.id): 1}
            case "resume":
                return {await place.resume_series(self.id): 1}
            case _:
                made = await place.run_series(self.id)
                return {Change.NOT_FOUND if made is None else Change.DUE_NOW: 1}


# The pages.

LIMIT = 100
"""Rows of a page, of Redis, and as many of the ledger."""
IN_REDIS, IN_LEDGER = "redis", "ledger"


class SeriesPages:
    """The handlers of these pages."""

    def __init__(self, context: PageContext, of_ledger: AsyncSeriesPlace | None) -> None:
        self._context = context
        self._of_ledger = of_ledger

    async def series(self, request: Request) -> Response:
        """A page of the series, or of the one that is asked for."""
        if id := request.query_params.get("id", "").strip():
            return await self._one(request, check_series_id(id))
        cursor = request.query_params.get("cursor") or None
        trouble: list[str] = []
        if self._of_ledger is None:
            listing = await self._context.bridge.list_series(limit=LIMIT, cursor=cursor)
        else:
            listing, trouble = await self._list_both(self._of_ledger, cursor)
        return self._context.page(
            request, "series.html",
            series=listing.series, cursor=cursor, following=listing.cursor,
            left_out=[*texts_of(listing.left_out), *trouble], actions_on=actions_on, link=_link,
            now=await self._context.now(),
        )  # fmt: skip

    async def act(self, request: Request) -> Response:
        """Do something to one series."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        form = await read_form(request)
        order, place = SeriesOrder.read(form), _place_in(form) or IN_REDIS
        work = order.carry_out(self._at(place))
        try:
            changes = await carry_out(
                self._context, request, f"{order.name} series", order.id, work
            )
        except LedgerError as failure:
            return self._context.page(
                request, "trouble.html", status=503, title="The ledger did not change", text=(
                    f"{failure}. If the dashboard's login may not write there, use one that may: "
                    f"expirebridge series {order.name} {order.id}"
                ),
            )  # fmt: skip
        told = str(next(iter(changes)))
        return redirect(request, "series", id=order.id, **{"in": place}, told=told)

    async def _one(self, request: Request, id: str) -> Response:
        found = await self._find(id, _place_in(request.query_params))
        if found is None:
            return self._context.page(
                request, "trouble.html", status=404, title="No such series",
                text=f"No series has the id {id}.",
            )  # fmt: skip
        now = await self._context.now()
        ticks = await self._context.store.run(ticks_of(id, self._context.operations))
        return self._context.page(
            request, "one_series.html",
            one=found, shown=on_page(values_of(found, FIELDS)), ticks=ticks,
            tasks=[self._context.redact(task) for task in ticks.tasks],
            next_id=None if found.next is None else f"{id}@{to_ms(found.next)}",
            actions_on=actions_on, link=_link, now=now,
            told=request.query_params.get("told", ""),
        )  # fmt: skip

    async def _find(self, id: str, place: str | None) -> Series | None:
        """A series, as the commands find it: that of the ledger, if there are two."""
        found, trouble = None, None
        if self._of_ledger is not None and place != IN_REDIS:
            try:
                found = await self._of_ledger.get_series(id)
            except LedgerError as failure:  # it may be in Redis
                trouble = failure
        if found is None and place != IN_LEDGER:
            found = await self._context.bridge.get_series(id)
        if found is None and trouble is not None:
            raise trouble
        return found

    async def _list_both(
        self, of_ledger: AsyncSeriesPlace, cursor: str | None
    ) -> tuple[SeriesListing, list[str]]:
        """A page of both, and why the ledger's are left out, if they are."""
        here, there = cursors_in(cursor)
        in_redis, in_ledger, trouble = None, None, []
        if here != "":
            in_redis = await self._context.bridge.list_series(limit=LIMIT, cursor=here)
        try:
            if there != "":
                in_ledger = await of_ledger.list_series(limit=LIMIT, cursor=there)
        except LedgerError as error:
            trouble = [f"the ledger: {error}"]
        return joined(in_redis, in_ledger), trouble

    def _at(self, place: str) -> AsyncSeriesPlace:
        if place == IN_REDIS:
            return self._context.bridge
        if self._of_ledger is None:
            raise InvalidTask("in: this dashboard has no ledger")
        return self._of_ledger


def _place_in(given: Mapping[str, str]) -> str | None:
    """Where a series is, if that is said: one of the ledger may have the same id."""
    place = given.get("in")
    if place not in {None, IN_REDIS, IN_LEDGER}:
        raise InvalidTask(f"in={place!r}: {IN_REDIS} or {IN_LEDGER}")
    return place


def _link(series: Series) -> str:
    """The query of a series' page."""
    return urlencode({"id": series.id, "in": IN_LEDGER if series.ledger else IN_REDIS})


def _routes(context: PageContext, _: Overview) -> list[BaseRoute]:
    pages = SeriesPages(context, awaited_place_beside(context.settings))
    return [
        Route("/series", pages.series, name="series"),
        Route("/series", pages.act, methods=["POST"]),
    ]


PAGES = CapabilityPages(routes=_routes, entry=lambda _: Entry(30, "series", "/series", "Series"))
