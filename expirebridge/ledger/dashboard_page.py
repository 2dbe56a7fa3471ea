"""The page of a ledger."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from expirebridge.bridge import Operations
from expirebridge.checks.finding import Finding, Level
from expirebridge.errors import InvalidTask, LedgerError

# First, so that without SQLAlchemy the error is that of `expirebridge.ledger`.
from expirebridge.ledger import LedgerTask
from expirebridge.ledger.calls import RedisCheckpoint, read_ledgers
from expirebridge.ledger.figures import LedgerFigures
from expirebridge.ledger.inspection import MOST, LedgerInspector
from expirebridge.ledger.row_pages import (
    MOST_LISTED,
    MOST_LOOKED_AT,
    ListedRow,
    RowKind,
    RowPage,
)
from expirebridge.ledger.rows import FINAL_STATES, DesiredState, Status, check_ext
from expirebridge.ledger.table_checks import check_ledger
from expirebridge.task import keys
from expirebridge.task.calls.call import Steps
from expirebridge.task.task import State, Task, from_ms, to_ms
from expirebridge.web.context import PageContext
from expirebridge.web.overview import PRESENT_FOR, Shared

LIMIT = 100
KINDS = {
    RowKind.RELAY: "to be carried",
    RowKind.REBUILD: "to be rebuilt",
    RowKind.TAKEN: "wait for their ids",
    RowKind.REFUSED: "refused",
    RowKind.TIME: "wait for their time",
    RowKind.KEPT_BACK: "kept back in SQL",
}
"""The rows that the page lists, and what it calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """The present state of the ledger."""

    figures: LedgerFigures | None = None
    """None if its database does not answer."""
    alarms: tuple[Finding, ...] = ()


class Beside(NamedTuple):
    """A row that is listed, and what Redis has of it."""

    row: ListedRow
    shown: Task
    """The row as a task, without what must not be shown."""
    state: State | None
    """The state of its task; None if Redis has none."""
    reason: str


class LedgerPages:
    """The handlers of these pages. One reading serves all who look at it within a second."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._inspector = LedgerInspector(context.settings)
        self._present = Shared(self._read, PRESENT_FOR)

    async def ledger(self, request: Request) -> Response:
        """The page."""
        ext = request.query_params.get("ext", "").strip()
        present = await self._present()
        found: Sequence[LedgerTask] = ()
        if check_ext(ext or None) and present.figures is not None:
            found = await self._find(ext)
        kind = _kind_in(request.query_params, present)
        page = await self._page(kind, request.query_params.get("cursor") or None)
        return self._context.page(
            request, "ledger.html",
            name=self._context.settings.ledger_name, present=present, ext=ext, limit=LIMIT,
            most=MOST, found=[(*self._shown(task), _near(task, present)) for task in found],
            kind=kind, kinds=KINDS, page=page,
            listed=await self._beside(page.rows), is_first="cursor" not in request.query_params,
            most_listed=MOST_LISTED, most_looked_at=MOST_LOOKED_AT, now=await self._context.now(),
        )  # fmt: skip

    async def alarms(self) -> tuple[Finding, ...]:
        """Return the alarms of the ledger, for the overview."""
        return (await self._present()).alarms

    async def _read(self) -> LedgerState:
        loop = asyncio.get_running_loop()

        def ask() -> dict[int, RedisCheckpoint]:
            """Read the checkpoint of each partition from a thread."""
            return asyncio.run_coroutine_threadsafe(self._checkpoints(), loop).result()

        findings = await asyncio.to_thread(check_ledger, self._context.settings, ask)
        alarms = tuple(one for one in findings if one.level is not Level.OK)
        checkpoints = await self._checkpoints()
        try:
            figures = await asyncio.to_thread(self._inspector.figures, checkpoints)
        except LedgerError:
            return LedgerState(alarms=alarms)  # which say so
        return LedgerState(figures=figures, alarms=alarms)

    async def _find(self, ext: str) -> Sequence[LedgerTask]:
        try:
            return await asyncio.to_thread(partial(self._inspector.find, ext, LIMIT))
        except LedgerError:
            return ()

    async def _page(self, kind: RowKind, cursor: str | None) -> RowPage:
        try:
            return await asyncio.to_thread(self._inspector.page, kind, cursor)
        except LedgerError:  # an alarm says so
            return RowPage(rows=[], cursor=None)

    async def _beside(self, rows: Sequence[ListedRow]) -> list[Beside]:
        """Rows as they may be shown, each with the state of its task in Redis, if there is one."""
        ids = [row.task.id for row in rows if keys.is_id(row.task.id)]
        states = await self._context.store.run(_states_of(ids, self._context.operations))
        beside = []
        for row in rows:
            _, shown = self._shown(row.task)
            # Why a row is refused is its message, which a redaction may hide.
            hidden = row.task.status is Status.FAILED and shown.error != row.task.message
            reason = (shown.error or "") if hidden else row.reason
            beside.append(Beside(row, shown, states.get(row.task.id), reason))
        return beside

    async def _checkpoints(self) -> dict[int, RedisCheckpoint]:
        return await self._context.store.run(read_ledgers(run_ids=True))

    def _shown(self, row: LedgerTask) -> tuple[LedgerTask, Task]:
        """A row, and beside it the same as a task, without what must not be shown."""
        task = Task(
            id=row.id,
            func=row.func,
            args=row.args,
            kwargs=row.kwargs,
            key=b"",
            state=FINAL_STATES.get(row.status, State.PENDING),
            due=row.due or row.created or from_ms(0),
            error=row.message,
        )
        return row, self._context.redact(task)


def _kind_in(query: Mapping[str, str], present: LedgerState) -> RowKind:
    """The rows that are asked for; else the first kind of which there are some."""
    if (asked := query.get("rows")) is not None:
        if asked not in set(RowKind):
            raise InvalidTask(f"rows={asked[:60]!r}: one of {', '.join(RowKind)}")
        return RowKind(asked)
    if (figures := present.figures) is None:
        return RowKind.RELAY
    counts = {
        RowKind.RELAY: figures.to_relay,
        RowKind.REBUILD: figures.to_rebuild,
        RowKind.TAKEN: figures.for_ids.count,
        RowKind.REFUSED: figures.refused,
    }
    return next((kind for kind, count in counts.items() if count), RowKind.TIME)


def _near(task: LedgerTask, present: LedgerState) -> datetime | None:
    """When a task is brought to Redis that is kept back in SQL until then; None if it is not."""
    figures = present.figures
    if figures is None or task.status is not Status.WAITING or task.relayed or task.due is None:
        return None
    if task.wanted is DesiredState.CANCELLED:
        return None
    near = from_ms(to_ms(task.due) - figures.reach.ms)
    return near if near > figures.now else None


def _states_of(ids: Sequence[str], operations: Operations) -> Steps[dict[str, State]]:
    """Return the states of those tasks that Redis has."""
    states = {}
    for id in ids:
        task = yield from operations.get(id)
        if task is not None:
            states[id] = task.state
    return states
