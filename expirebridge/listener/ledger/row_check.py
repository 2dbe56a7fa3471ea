"""The row check: asks the ledger about tasks before they run, and after they failed."""

import asyncio
import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from expirebridge.errors import CompletionRefused, LedgerError
from expirebridge.hooks import End
from expirebridge.listener.execution.exceptions import StartRefused
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.listener.ledger.gate import LedgerGate
from expirebridge.model.keys import ERASED
from expirebridge.store.commands.claiming import Settlement
from expirebridge.store.commands.ledger import RowVersion

if TYPE_CHECKING:
    from expirebridge.ledger.completion import Completer
    from expirebridge.ledger.entries import RowState
    from expirebridge.ledger.partition import LedgerPartition
    from expirebridge.listener.execution.attempt import Attempt

AWAY = 1.0
"""Seconds for which a task is put off when the ledger's database does not answer."""
BEHIND = 0.5
"""Seconds for which it is put off when row and record differ: a pass brings them together."""
_ENDED = {10: "succeeded", 20: "failed", 30: "cancelled"}
_CLOSED = "the connection to the server is new: the ledger is compared with it first"


class RowCheck:
    """Knows from its row what became of a task: a server that lost something may not.

    A task without a row never runs. What is asked for at the same moment is one query.
    """

    def __init__(self, books: "LedgerPartition", gate: LedgerGate) -> None:
        self._books = books
        self._gate = gate
        self._asked: dict[str, asyncio.Future[RowState | None]] = {}

    async def look_up(self, attempt: "Attempt") -> AttemptOutcome | None:
        """The outcome if the task is not to run now; None if it is. Raises StartRefused."""
        try:
            fate = await self._fate(attempt.claimed.id)
        except LedgerError as error:
            self._gate.close()
            return attempt.outcomes.spread(AWAY, f"{error}; it waits for the ledger")
        if self._gate.number is None:
            raise StartRefused(_CLOSED)
        return by_row(attempt, RowVersion.read(attempt.claimed.ledger), fate)

    async def look_after(self, attempt: "Attempt", failed: AttemptOutcome) -> AttemptOutcome:
        """What is to be recorded of an attempt that failed: its row may know better.

        It may have been completed before it failed. Or the row wants something by now, and so
        `complete_in` was refused, if it was called: then the attempt does not count.
        """
        try:
            fate = await self._fate(attempt.claimed.id)
        except LedgerError as error:
            if not isinstance(failed.error, CompletionRefused):
                return failed  # if its row has ended, a pass tells the server
            return attempt.outcomes.spread(AWAY, f"{failed.error}; {error}")
        return by_row(attempt, RowVersion.read(attempt.claimed.ledger), fate) or failed

    async def with_rows(self, ids: Collection[str]) -> set[str]:
        """Which of these tasks are the ledger's; none while its database does not answer."""
        try:
            return set(await self._books.run(self._books.ask, ids))
        except LedgerError:  # whoever looks up tasks reports it
            return set()

    async def recall(self, ids: Collection[str]) -> None:
        """Have tasks carried again whose records the server lost."""
        with contextlib.suppress(LedgerError):  # their rows are as they were
            await self._books.run(self._books.recall, ids)

    def completer_for(self, attempt: "Attempt") -> "Completer":
        """What completes the task in a transaction of its handler."""
        life = RowVersion.read(attempt.claimed.ledger) or RowVersion(0, 0)
        return self._books.completer(attempt.claimed.id, life, attempt.claimed.attempt)

    async def _fate(self, id: str) -> "RowState | None":
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._send)
        if id not in self._asked:
            self._asked[id] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._asked[id])

    def _send(self) -> None:
        asked, self._asked = self._asked, {}
        self._sending = asyncio.create_task(self._answer(asked))

    async def _answer(self, asked: "dict[str, asyncio.Future[RowState | None]]") -> None:
        try:
            fates = await self._books.run(self._books.ask, list(asked))
        except BaseException as error:
            for future in asked.values():
                future.set_exception(error)
                future.exception()  # whoever asked may be gone
            if not isinstance(error, LedgerError):
                raise
        else:
            for id, future in asked.items():
                future.set_result(fates.get(id))


def by_row(
    attempt: "Attempt", record: RowVersion | None, fate: "RowState | None"
) -> AttemptOutcome | None:
    """The outcome if the row says that the task is not to run, or not now; else None."""
    claimed = attempt.claimed
    outcome, reason = verdict(record, fate)
    if outcome == "later":
        return attempt.outcomes.spread(BEHIND, reason)
    if outcome == "runs":
        erased = "its arguments were erased"
        return attempt.outcomes.failed(erased) if claimed.args == ERASED else None
    end = End.SUCCEEDED if outcome == "succeeded" else End.FAILED
    text = "" if end is End.SUCCEEDED else reason
    return AttemptOutcome(
        end, Settlement(claimed.id, claimed.token, outcome, 0.0, text), reason, reason
    )


def verdict(record: RowVersion | None, row: "RowState | None") -> tuple[str, str]:
    """What is to become of a task by its row, and why: see docs/reference/states.md.

    `runs`; `later`, once a pass has brought row and record together; or the state in which it ends.
    """
    if row is None:
        return "cancelled", "its row is gone from the ledger"
    if record is None:
        return "later", "its record names no row"
    is_new = row.life.revision != record.revision or row.life.generation > record.generation
    if row.life.generation < record.generation and not is_new:
        return "later", "its row does not know yet that it began anew"
    if row.status != 1:
        return _ENDED[row.status], row.message or ""
    if row.wanted == "cancelled":
        return "cancelled", "it was cancelled in the ledger"
    return ("later", "it was changed in the ledger") if is_new else ("runs", "")
