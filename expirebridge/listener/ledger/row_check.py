"""Checks tasks of the ledger against their rows, before they run and after they failed."""

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
from expirebridge.model.row_state import FINAL_STATES, DesiredState, RowState, RowVersion, Status
from expirebridge.store.commands.claiming import Settlement

if TYPE_CHECKING:
    from expirebridge.ledger.completion import Completer
    from expirebridge.ledger.partition import LedgerPartition
    from expirebridge.listener.execution.attempt import Attempt

DATABASE_RETRY = 1.0
"""Seconds for which a task is put off when the ledger's database does not answer."""
VERSION_RETRY = 0.5
"""Seconds for which it is put off when row and record differ; the next relay batch resolves it."""
_CLOSED = "the connection to the server is new: the ledger is compared with it first"


class RowCheck:
    """Checks claimed tasks against their SQL rows, since Redis may have lost recent updates.

    A task without a row never runs. Rows that are asked for at the same moment are read in one
    query.
    """

    def __init__(self, partition: "LedgerPartition", gate: LedgerGate) -> None:
        self._partition = partition
        self._gate = gate
        self._asked: dict[str, asyncio.Future[RowState | None]] = {}

    async def look_up(self, attempt: "Attempt") -> AttemptOutcome | None:
        """Return the outcome of a task that must not run now; None if it may run.

        Raises StartRefused while the gate is closed.
        """
        try:
            row = await self._read(attempt.claimed.id)
        except LedgerError as error:
            self._gate.close()
            return attempt.outcomes.spread(DATABASE_RETRY, f"{error}; it waits for the ledger")
        if self._gate.number is None:
            raise StartRefused(_CLOSED)
        return outcome_by_row(attempt, RowVersion.read(attempt.claimed.ledger), row)

    async def look_after(self, attempt: "Attempt", failed: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome to record of an attempt that failed; its row may have another one.

        The attempt may have completed its task before it failed. Or the application changed the
        row meanwhile, and so `complete_in` was refused, if it was called: then the attempt does not
        count.
        """
        try:
            row = await self._read(attempt.claimed.id)
        except LedgerError as error:
            if not isinstance(failed.error, CompletionRefused):
                return failed  # if its row has ended, the relay updates Redis
            return attempt.outcomes.spread(DATABASE_RETRY, f"{failed.error}; {error}")
        return outcome_by_row(attempt, RowVersion.read(attempt.claimed.ledger), row) or failed

    async def with_rows(self, ids: Collection[str]) -> set[str]:
        """Return those of these tasks that have a row; none while the database does not answer."""
        try:
            return set(await self._partition.run(self._partition.ask, ids))
        except LedgerError:  # `look_up` reports it
            return set()

    async def recall(self, ids: Collection[str]) -> None:
        """Have tasks relayed again whose records the server lost."""
        with contextlib.suppress(LedgerError):  # their rows are as they were
            await self._partition.run(self._partition.recall, ids)

    def completer_for(self, attempt: "Attempt") -> "Completer":
        """Return the object that completes the task in a transaction of its handler."""
        version = RowVersion.read(attempt.claimed.ledger) or RowVersion(0, 0)
        return self._partition.completer(attempt.claimed.id, version, attempt.claimed.attempt)

    async def _read(self, id: str) -> RowState | None:
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._send)
        if id not in self._asked:
            self._asked[id] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._asked[id])

    def _send(self) -> None:
        asked, self._asked = self._asked, {}
        self._sending = asyncio.create_task(self._answer(asked))

    async def _answer(self, asked: dict[str, asyncio.Future[RowState | None]]) -> None:
        try:
            rows = await self._partition.run(self._partition.ask, list(asked))
        except BaseException as error:
            for future in asked.values():
                future.set_exception(error)
                future.exception()  # the caller may have been cancelled
            if not isinstance(error, LedgerError):
                raise
        else:
            for id, future in asked.items():
                future.set_result(rows.get(id))


def outcome_by_row(
    attempt: "Attempt", record: RowVersion | None, row: RowState | None
) -> AttemptOutcome | None:
    """Return the outcome of a task that must not run, or not now, by its row; None if it may."""
    claimed = attempt.claimed
    decision, reason = decide(record, row)
    if decision == "later":
        return attempt.outcomes.spread(VERSION_RETRY, reason)
    if decision == "runs":
        erased = "its arguments were erased"
        return attempt.outcomes.failed(erased) if claimed.args == ERASED else None
    end = End.SUCCEEDED if decision == "succeeded" else End.FAILED
    text = "" if end is End.SUCCEEDED else reason
    settlement = Settlement(
        claimed.id, claimed.token, decision, 0.0, text,
        late=attempt.late, objective=attempt.outcomes.objective,
    )  # fmt: skip
    return AttemptOutcome(end, settlement, reason, reason)


def decide(record: RowVersion | None, row: RowState | None) -> tuple[str, str]:
    """Decide by its row what happens to a task, and why: see docs/reference/states.md.

    `runs`; `later`, once the relay has brought row and record together; or its final state.
    """
    if row is None:
        return "cancelled", "its row is gone from the ledger"
    if record is None:
        return "later", "its record names no row"
    version = row.version
    is_new = version.revision != record.revision or version.generation > record.generation
    if version.generation < record.generation and not is_new:
        return "later", "its row does not know yet that it began anew"
    if row.status != Status.WAITING:
        return FINAL_STATES[row.status].value, row.message or ""
    if row.wanted == DesiredState.CANCELLED:
        return "cancelled", "it was cancelled in the ledger"
    return ("later", "it was changed in the ledger") if is_new else ("runs", "")
