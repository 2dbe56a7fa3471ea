"""Decides whether tasks of a ledger run: by a gate for all of them, and by the row of each."""

import asyncio
import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from expirebridge.errors import CompletionRefused, LedgerError, ServerError
from expirebridge.hooks import End
from expirebridge.ledger import calls
from expirebridge.ledger.rows import (
    FINAL_STATES,
    DesiredState,
    RowState,
    RowVersion,
    Status,
    SyncState,
)
from expirebridge.listener.execution.exceptions import StartRefused
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.listener.session import PartitionSession, SessionOwner
from expirebridge.settings import Settings
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.keys import ERASED

if TYPE_CHECKING:
    from expirebridge.ledger.calls import Lost
    from expirebridge.ledger.completion import Completer
    from expirebridge.ledger.partition import LedgerPartition
    from expirebridge.listener.execution.attempt import Attempt

DATABASE_RETRY = 1.0
"""Seconds for which a task is put off when the ledger's database does not answer."""
VERSION_RETRY = 0.5
"""Seconds for which it is put off if row and record still differ after a batch of the relay."""
_NO_ROW = "its row is gone from the ledger"
_CLOSED = "the connection to the server is new: the ledger is compared with it first"


class Link(NamedTuple):
    """Session of a partition, and the number of connections made in it."""

    session: PartitionSession
    made: int


class LedgerGate:
    """Lets tasks of the ledger be claimed while the checkpoints of ledger and server agree.

    ConsistencyCheck opens it for one link. A new connection closes it: it may lead to a server that
    has lost data.
    """

    def __init__(self, consumer: SessionOwner) -> None:
        self._consumer = consumer
        self._opened: Link | None = None
        self._number = 0
        self.unmarked: Lost | None = None
        """What the server lost then, if rows of that are not marked yet."""
        self.openings = 0
        """How often it was opened: each time what was passed over is looked at again."""
        self.wanted = asyncio.Event()
        """Set when a closed gate held up a task; wakes the ConsistencyCheck."""

    @property
    def link(self) -> Link:
        """The present one."""
        session = self._consumer.session
        return Link(session, session.connection_count.made)

    @property
    def opened_with(self) -> int | None:
        """The number of the batch that the server must have seen; None while it is closed."""
        return self._number if self._opened == self.link else None

    @property
    def number(self) -> int | None:
        """The same, for a task: that wants a closed gate to be opened."""
        number = self.opened_with
        if number is None:
            self.wanted.set()
        return number

    def open(self, link: Link, number: int, unmarked: "Lost | None" = None) -> bool:
        """Open it for this link, whose server has seen that batch; True if it was closed."""
        was_closed = self._opened != link
        self._opened, self._number, self.unmarked = link, number, unmarked
        self.openings += was_closed
        return was_closed

    def close(self) -> None:
        """Claim nothing of the ledger until it is opened again."""
        self._opened = None


class _Question(NamedTuple):
    """What was asked about a task, by the version of its row that its record names."""

    record: RowVersion | None
    answer: asyncio.Future[RowState | None]


class RowCheck:
    """Checks claimed tasks against their SQL rows, since Redis may have lost recent updates.

    A task without a row never runs. Rows that are asked for at the same moment are read in one
    query.
    """

    def __init__(self, partition: "LedgerPartition", gate: LedgerGate, settings: Settings) -> None:
        self._settings = settings
        self._partition = partition
        self._gate = gate
        self._asked: dict[str, _Question] = {}
        self._recalls = set[asyncio.Task[None]]()
        self._relaying: asyncio.Future[int] | None = None

    async def look_up(self, attempt: "Attempt") -> AttemptOutcome | None:
        """Return the outcome of a task that must not run now; None if it may run.

        Raises StartRefused while the gate is closed.
        """
        record = RowVersion.read(attempt.claimed.ledger)
        try:
            row = await self._read(attempt.claimed.id, record)
            decision, _ = decide(record, row, self._gate.unmarked)
            if decision in {"later", "undecided"}:
                if decision == "later" and self._settings.ledger_horizon is not None:
                    await self._partition.run(self._partition.note_met, [attempt.claimed.id])
                await self._bring_together()
                row = await self._read(attempt.claimed.id, record)
        except LedgerError as error:
            self._gate.close()
            return attempt.outcomes.not_begun(DATABASE_RETRY, f"{error}; it waits for the ledger")
        if self._gate.number is None:
            raise StartRefused(_CLOSED)
        if row is None and await self._awaits_its_row(attempt):
            return attempt.outcomes.dropped(VERSION_RETRY, _NO_ROW, began=False)
        return outcome_by_row(attempt, record, row, self._gate.unmarked)

    async def look_after(self, attempt: "Attempt", failed: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome to record of an attempt that failed; its row may have another one.

        The attempt may have completed its task before it failed. Or the application changed the
        row meanwhile, and so `complete_in` was refused, if it was called: then the attempt does not
        count.
        """
        record = RowVersion.read(attempt.claimed.ledger)
        try:
            row = await self._read(attempt.claimed.id, record)
        except LedgerError as error:
            if not isinstance(failed.error, CompletionRefused):
                return failed  # if its row has ended, the relay updates Redis
            return attempt.outcomes.spread(DATABASE_RETRY, f"{failed.error}; {error}")
        if row is None and await self._awaits_its_row(attempt):
            if not isinstance(failed.error, CompletionRefused):
                return failed
            return attempt.outcomes.spread(DATABASE_RETRY, f"{failed.error}; {_NO_ROW}")
        if row is not None:
            row = row._replace(todo=SyncState.NOTHING)  # what was lost does not undo what ran
        by_row = outcome_by_row(attempt, record, row)
        return outcome_after(failed, by_row)

    async def _awaits_its_row(self, attempt: "Attempt") -> bool:
        """True if a task without a row is put off, since it was sent before its batch.

        One that has waited for long has ended in the server when this returns.
        """
        claimed = attempt.claimed
        call = calls.judge_early(claimed.id, claimed.token, _NO_ROW, self._settings)
        try:
            verdict = await self._gate.link.session.store.run(call)
        except ServerError:
            return True
        return verdict is calls.EarlyVerdict.WAITS

    async def _bring_together(self) -> None:
        """Relay a batch in each direction, so that rows and records agree; those that ask at the
        same moment share it. A failure is left to the next question to the row."""
        if self._relaying is None or self._relaying.done():
            partition = self._partition
            self._relaying = asyncio.ensure_future(partition.bring_together())
        with contextlib.suppress(LedgerError, ServerError):
            await asyncio.shield(self._relaying)

    async def with_rows(self, ids: Collection[str]) -> set[str]:
        """Return those of these tasks that have a row; none while the database does not answer."""
        try:
            return set(await self._partition.run(self._partition.ask, ids))
        except LedgerError:  # `look_up` reports it
            return set()

    async def recall(self, ids: Collection[str]) -> None:
        """Have tasks relayed again whose records the server lost; if rows are locked, later."""
        with contextlib.suppress(LedgerError):  # their rows are as they were
            locked = await self._partition.run(self._partition.recall, ids)
            if locked:
                later = asyncio.create_task(self._recall_later(locked))
                self._recalls.add(later)
                later.add_done_callback(self._recalls.discard)

    async def _recall_later(self, ids: Collection[str]) -> None:
        await asyncio.sleep(DATABASE_RETRY)
        await self.recall(ids)

    def completer_for(self, attempt: "Attempt") -> "Completer":
        """Return the object that completes the task in a transaction of its handler."""
        version = RowVersion.read(attempt.claimed.ledger) or RowVersion(0, 0)
        return self._partition.completer(attempt.claimed.id, version, attempt.claimed.attempt)

    async def _read(self, id: str, record: RowVersion | None) -> RowState | None:
        """Read the row of a task that was claimed; if its deadline can decide, it has decided."""
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._send)
        if id not in self._asked:
            self._asked[id] = _Question(record, asyncio.get_running_loop().create_future())
        return await asyncio.shield(self._asked[id].answer)

    def _send(self) -> None:
        asked, self._asked = self._asked, {}
        self._sending = asyncio.create_task(self._answer(asked))

    async def _answer(self, asked: dict[str, _Question]) -> None:
        try:
            rows = await self._partition.run(self._partition.ask, list(asked))
            undecided = {
                id: row.version
                for id, row in rows.items()
                if decide(asked[id].record, row, self._gate.unmarked)[0] == "undecided"
            }
            for id in asked.keys() - undecided.keys():
                asked[id].answer.set_result(rows.get(id))
            if undecided:
                rows = await self._partition.run(self._partition.decide, undecided)
                for id in undecided:
                    asked[id].answer.set_result(rows.get(id))
        except BaseException as error:
            for _, answer in asked.values():
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()  # the caller may have been cancelled
            if not isinstance(error, LedgerError):
                raise


def outcome_by_row(
    attempt: "Attempt",
    record: RowVersion | None,
    row: RowState | None,
    unmarked: "Lost | None" = None,
) -> AttemptOutcome | None:
    """Return the outcome of a task that must not run, or not now, by its row; None if it may."""
    claimed = attempt.claimed
    decision, reason = decide(record, row, unmarked)
    if decision in {"later", "undecided", "lost"}:
        return attempt.outcomes.dropped(VERSION_RETRY, reason, began=attempt.began is not None)
    if decision == "runs":
        erased = "its arguments were erased"
        return attempt.outcomes.failed(erased) if claimed.args == ERASED else None
    end = End.SUCCEEDED if decision == "succeeded" else End.DROPPED
    text = "" if end is End.SUCCEEDED else reason
    settlement = Settlement(
        claimed.id, claimed.token, decision, 0.0, text,
        late=attempt.outcomes.late, objective=attempt.outcomes.objective,
    )  # fmt: skip
    return AttemptOutcome(end, settlement, reason, reason)


def outcome_after(failed: AttemptOutcome, by_row: AttemptOutcome | None) -> AttemptOutcome:
    """Return the outcome of an attempt that failed, and of which its row says this.

    If the row was cancelled, or changed, it decides what becomes of the task: a handler that failed
    has failed all the same, unless all that failed was to complete that row.
    """
    if by_row is None:
        return failed
    if by_row.end is End.DROPPED and not isinstance(failed.error, CompletionRefused):
        return failed._replace(settlement=by_row.settlement)
    return by_row


def decide(
    record: RowVersion | None, row: RowState | None, unmarked: "Lost | None" = None
) -> tuple[str, str]:
    """Decide by its row what happens to a task, and why: see docs/reference/states.md.

    `unmarked` is what the server lost, if not all of these rows are marked.

    Returns `runs`; `undecided`, as long as a signal can decide it; `later`, once the relay has
    brought row and record together; `lost`, likewise, but that is under way; or its final state.
    """
    if row is None:
        return "cancelled", _NO_ROW
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
    if is_new:
        return "later", "it was changed in the ledger"
    if row.todo == SyncState.REBUILD or (unmarked is not None and unmarked.has(row.stamp)):
        return "lost", "Redis has lost what became of it, and gets that from the ledger first"
    if row.is_open:
        return "undecided", "another transaction has locked its row, and may signal it"
    return "runs", ""
