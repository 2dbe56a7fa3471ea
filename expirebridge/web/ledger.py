"""The page of a ledger: how far it is behind, refused rows, a search by `ext`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from expirebridge.checks.finding import Finding, Level
from expirebridge.errors import LedgerError
from expirebridge.ledger.auditor import MOST, Auditor, Figures
from expirebridge.ledger.findings import check_ledger
from expirebridge.ledger.rows import LedgerTask, check_ext
from expirebridge.ledger.tables import Status
from expirebridge.store.calls.ledger import Known, read_ledgers
from expirebridge.task import State, Task, from_ms
from expirebridge.web.overview import PRESENT_FOR, Shared
from expirebridge.web.site import Site

LIMIT = 100
_STATES = {
    Status.WAITING: State.PENDING,
    Status.SUCCEEDED: State.SUCCEEDED,
    Status.FAILED: State.FAILED,
    Status.CANCELLED: State.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """How the ledger stands now."""

    figures: Figures | None = None
    """None if its database does not answer."""
    alarms: tuple[Finding, ...] = ()
    refused: Sequence[LedgerTask] = ()


class LedgerPages:
    """The handlers of these pages. One reading serves all who look at it within a second."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._auditor = Auditor(site.settings)
        self._present = Shared(self._read, PRESENT_FOR)

    async def ledger(self, request: Request) -> Response:
        """The page."""
        ext = request.query_params.get("ext", "").strip()
        present = await self._present()
        found: Sequence[LedgerTask] = ()
        if check_ext(ext or None) and present.figures is not None:
            found = await self._find(ext)
        return self._site.page(
            request, "ledger.html",
            name=self._site.settings.ledger_name, present=present, ext=ext, limit=LIMIT, most=MOST,
            found=[self._shown(task) for task in found],
            refused=[self._shown(task) for task in present.refused],
            now=await self._site.now(),
        )  # fmt: skip

    async def alarms(self) -> tuple[Finding, ...]:
        """What is wrong with the ledger, for the overview."""
        return (await self._present()).alarms

    async def _read(self) -> Present:
        loop = asyncio.get_running_loop()

        def ask() -> dict[int, Known]:
            """What each partition knows of its ledger, asked from a thread."""
            return asyncio.run_coroutine_threadsafe(self._known(), loop).result()

        findings = await asyncio.to_thread(check_ledger, self._site.settings, ask)
        alarms = tuple(one for one in findings if one.level is not Level.OK)
        known = await self._known()
        try:
            figures = await asyncio.to_thread(self._auditor.figures, known)
            refused = await asyncio.to_thread(self._auditor.refused, LIMIT)
        except LedgerError:
            return Present(alarms=alarms)  # which say so
        return Present(figures=figures, alarms=alarms, refused=refused)

    async def _find(self, ext: str) -> Sequence[LedgerTask]:
        try:
            return await asyncio.to_thread(partial(self._auditor.find, ext, LIMIT))
        except LedgerError:
            return ()

    async def _known(self) -> dict[int, Known]:
        return await self._site.store.run(read_ledgers())

    def _shown(self, row: LedgerTask) -> tuple[LedgerTask, Task]:
        """A row, and beside it the same as a task, without what must not be shown."""
        task = Task(
            id=row.id,
            func=row.func,
            args=row.args,
            kwargs=row.kwargs,
            key=b"",
            state=_STATES[row.status],
            due=row.due or row.created or from_ms(0),
            error=row.message,
        )
        return row, self._site.redact(task)
