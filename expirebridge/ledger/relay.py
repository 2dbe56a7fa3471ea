"""The relay: brings rows to the server, and outcomes back to rows, in numbered batches.

Each batch is a generator that stops between any two of its steps: a test can leave it there for
ever, as a process does that dies. See docs/internals/outbox-relay.md for why each step is there.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Row

from expirebridge.errors import InvalidTask
from expirebridge.hooks import Direction, Passed
from expirebridge.ledger import calls
from expirebridge.ledger.binding import Binder
from expirebridge.ledger.calls import (
    Lost,
    RedisCheckpoint,
    RelayCode,
    RelayedRow,
    RelayResult,
    WriteBack,
)
from expirebridge.ledger.relay_statements import (
    RelayState,
    RowBatch,
    RowResult,
    StatusUpdate,
    WrittenRows,
)
from expirebridge.ledger.relay_store import REFUSED_PAUSE, RelayStore
from expirebridge.ledger.rows import (
    FINAL_STATES,
    LARGEST_COUNT,
    LARGEST_TIME,
    Decided,
    DesiredState,
    RowVersion,
    Status,
    SyncState,
    is_kept_back,
    new_task_of,
)
from expirebridge.ledger.series_ticks import NEVER
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls.call import Argument, chunks, drive
from expirebridge.task.keys import is_id
from expirebridge.task.texts import event, plural

logger = logging.getLogger("expirebridge")

LOCKED_PAUSE: Final = 1.0
"""Seconds until a row is tried again that another transaction has locked."""
LONG: Final = 5.0
"""Seconds after which such a lock is reported."""
LONG_PAUSE: Final = 5.0
"""Seconds until it is tried again from then on."""


class UnwrittenRows:
    """Decides when rows are tried again that could not be written, and reports them.

    A row is locked for a moment by many an ordinary transaction: only long locks are reported, and
    each once.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """When each row that is locked was first met, by time.monotonic()."""
        self._reported: set[str] = set()
        self._reasons: dict[str, str] = {}
        """Why the database refuses to write rows, as it was reported."""

    def note(self, ids: Collection[str], written: WrittenRows) -> dict[str, float]:
        """Note what a batch of these rows left out; returns in how many seconds to try again."""
        for id in set(ids).difference(written.locked):
            self._since.pop(id, None)
            self._reported.discard(id)
        for id in set(ids).difference(written.refused):
            self._reasons.pop(id, None)
        now = time.monotonic()
        waited = {id: now - self._since.setdefault(id, now) for id in written.locked}
        self._report_locked([id for id, seconds in waited.items() if seconds >= LONG])
        for id, reason in written.refused.items():
            if self._reasons.get(id) == reason:
                continue
            self._reasons[id] = reason
            logger.error(
                "the database refuses to write row %r of the ledger: %s", id, reason,
                extra=event("row not written", task=id, reason=reason),
            )  # fmt: skip
        pauses = {
            id: LONG_PAUSE if seconds >= LONG else LOCKED_PAUSE for id, seconds in waited.items()
        }
        return pauses | dict.fromkeys(written.refused, REFUSED_PAUSE)

    def _report_locked(self, ids: Collection[str]) -> None:
        news = sorted(set(ids) - self._reported)
        if not news:
            return
        self._reported |= set(news)
        logger.warning(
            "another transaction has locked row %r of the ledger%s for %g s: what happens to the "
            "task is written there when that ends", news[0],
            f", and {plural(len(news) - 1, 'other', 'others')}," if len(news) > 1 else "", LONG,
            extra=event("rows locked", task=news[0], count=len(news)),
        )  # fmt: skip


T = TypeVar("T")
BatchSteps = Generator[str, None, T]
"""The steps of a batch: yields the name of each completed one, and returns the number of rows."""
ROWS_A_SCRIPT = 25
"""Rows of one script: about 2 ms of the server's time."""
INTERRUPTED = -1
"""The result of a batch if another one came before it: it must be repeated."""

TAKEN = "its id belongs to a task that is not of the ledger"
WAITS_FOR_ID = "its id belongs to a task that is not of the ledger: it waits for the end of that"
_STATUS = {
    "succeeded": Status.SUCCEEDED,
    "failed": Status.FAILED,
    "cancelled": Status.CANCELLED,
}


class RelaySnapshot(NamedTuple):
    """The state of the relay, on both sides."""

    state: RelayState
    checkpoint: RedisCheckpoint

    @property
    def is_to_carry(self) -> bool:
        """True if rows wait for the relay, or the server has lost any."""
        is_marked = self.checkpoint.unmarked is None
        return self.state.waiting or self.state.unsorted or self.seems_lost or not is_marked

    @property
    def seems_lost(self) -> bool:
        """True if a row has the stamp of a batch that the server has not seen."""
        return self.checkpoint.number < self.state.stamp


class Relay:
    """Relays batches between one ledger and one partition of one server.

    Several listeners can: of two that relay at once, one is fenced out by the other's number.
    """

    def __init__(
        self, relay_store: RelayStore, store: Callable[[], Store], settings: Settings,
        binder: Binder,
    ) -> None:  # fmt: skip
        self._relay_store = relay_store
        self._store = store
        self._settings = settings
        self._binder = binder
        self.passed: deque[Passed] = deque(maxlen=1000)
        """The batches that were relayed, until they are taken from here and emitted to hooks."""
        self.latest: RelaySnapshot | None = None
        """The state after the latest batch that was completed here, as if rows waited, both ways. A
        batch that begins with it is interrupted if either side has changed since."""
        self._unwritten_rows = UnwrittenRows()
        self._waiting_for_ids: set[str] = set()
        """The rows of which that was logged."""

    def bind(self, state: RelayState | None = None) -> RelaySnapshot:
        """Read both sides. Raises LedgerUnsuitable if they are not bound to each other.

        SQL is read first, here or by the caller: a batch that ends meanwhile must not seem to be
        that of another ledger.
        """
        state = state or self._relay_store.read()
        checkpoint = self._store().run(calls.read_ledger())
        if state is None:
            self._binder.begin(checkpoint)
            return self.bind()
        self.check(state, checkpoint)
        return RelaySnapshot(state, checkpoint)

    def check(self, state: RelayState, checkpoint: RedisCheckpoint) -> None:
        """Raise LedgerUnsuitable unless the two are bound to each other."""
        if checkpoint.number > state.number:
            state = self._relay_store.read() or state
        self._binder.check(state, checkpoint)

    def is_checked(self, state: RelayState, checkpoint: RedisCheckpoint) -> bool:
        """True if `check` would find nothing and ask neither side."""
        return self._binder.is_checked(state, checkpoint)

    def is_rebuilding(self, state: RelayState) -> bool:
        """True if rows are to be rebuilt, and not all of them are locked by other transactions."""
        return state.rebuilding and not self._relay_store.lost_rows.is_held_up(0)

    def rebind(self) -> None:
        """Bind ledger and server to each other again; all rows are relayed again."""
        checkpoint = self._store().run(calls.read_ledger())
        nonce = self._binder.rebind(above=checkpoint.number)
        self._store().run(calls.bind_ledger(nonce))

    # From rows to the server

    def carry(self, snapshot: RelaySnapshot | None = None) -> BatchSteps[int]:
        """Relay a batch of rows, if some wait, or if the server has lost any.

        `snapshot` was read a moment ago. Raises LedgerUnsuitable, a ServerError, or
        SQLAlchemy's errors.
        """
        state, checkpoint = snapshot or self.bind()
        yield "read"
        if state.unsorted:
            self._relay_store.sort()
            yield "sorted"
            state, checkpoint = self.bind()
        if not state.waiting and checkpoint.number >= state.stamp and not checkpoint.unmarked:
            return 0
        page = self._relay_store.begin_batch(
            state, seen=checkpoint.number, unmarked=checkpoint.unmarked
        )
        yield "number taken"
        if page is None:
            return INTERRUPTED
        if page.number == state.number:
            return 0
        sent, unsent = self._read(page)
        results = self._apply([row for _, row in sent], state.nonce, checkpoint, page)
        yield "carried"
        if results is None:
            self._relay_store.page_size.note_interrupted()
            return INTERRUPTED
        done = unsent + [
            self._row_result(page.rows[at], result)
            for (at, _), result in zip(sent, results, strict=True)
        ]
        refused = [each for each in done if each.refusal is not None and not each.waits]
        self._report(refused)
        written = self._relay_store.finish_batch(page.number, done)
        yield "stamped"
        if written is None:
            self._relay_store.page_size.note_interrupted()
            return INTERRUPTED
        self._relay_store.page_size.note_completed()
        self._unwritten_rows.note([row.id for row in page.rows], written)
        left = checkpoint._replace(unmarked=page.unmarked)
        self.latest = _after(state, left, page.number, stamps=bool(page.rows))
        self.passed.append(_passed(page, len(refused)))
        return len(page.rows)

    def _apply(
        self, rows: list[RelayedRow], nonce: str, checkpoint: RedisCheckpoint, page: RowBatch
    ) -> list[RelayResult] | None:
        """Apply the rows of a batch on the server; None if another batch or ledger was there.

        Each script takes so few rows that what other clients ask does not wait for long.
        """
        results: list[RelayResult] = []
        for some in chunks(rows, ROWS_A_SCRIPT) if rows else [rows]:
            done = self._store().run(
                calls.relay(
                    some, checkpoint=checkpoint, nonce=nonce, number=page.number,
                    settings=self._settings, unmarked=page.unmarked,
                )
            )  # fmt: skip
            if done is None:
                return None
            results += done
            checkpoint = checkpoint._replace(nonce=nonce, number=page.number)
        return results

    def _read(self, page: RowBatch) -> tuple[list[tuple[int, RelayedRow]], list[RowResult]]:
        """Return the rows to send, each with its place in the page, and those that are refused."""
        sent, refused = [], []
        for at, row in enumerate(page.rows):
            try:
                sent.append((at, relayed_row(row, page.now, page.unmarked)))
            except InvalidTask as error:
                # One that has ended was refused before: there is nothing to relay.
                reason = str(error) if row.status == Status.WAITING else None
                refused.append(RowResult(row, None, reason))
        return sent, refused

    def _row_result(self, row: Row[Any], result: RelayResult) -> RowResult:
        if result.code is not RelayCode.TAKEN:
            self._waiting_for_ids.discard(row.id)
            return RowResult(row, result.due)
        if not is_kept_back(row._mapping, self._settings.ledger_horizon):
            return RowResult(row, result.due, TAKEN)
        if row.id not in self._waiting_for_ids:
            self._waiting_for_ids.add(row.id)
            logger.warning(
                "row %r of the ledger waits: %s", row.id, WAITS_FOR_ID,
                extra=event("row waits", task=row.id),
            )  # fmt: skip
        return RowResult(row, None, WAITS_FOR_ID, waits=True)

    def _report(self, refused: list[RowResult]) -> None:
        for each in refused:
            logger.error(
                "row %r of the ledger is refused: %s", each.row.id, each.refusal,
                extra=event("row refused", task=each.row.id, reason=each.refusal),
            )  # fmt: skip

    # From the server to rows

    def bring_back(self, snapshot: RelaySnapshot | None = None) -> BatchSteps[int]:
        """Write the states of a batch of dirty tasks to their rows. Raises as `carry`."""
        state, checkpoint = snapshot or self.bind()
        yield "read"
        if checkpoint.number < state.stamp or not checkpoint.dirty:
            return 0
        dirty = self._store().run(calls.read_dirty(calls.MAX_STATES))
        yield "dirty read"
        if dirty.checkpoint[:2] != (state.nonce, checkpoint.number):
            return INTERRUPTED
        if not dirty.entries:
            return 0
        entries = [each for each in dirty.entries if is_id(each.id)]  # no row has another id
        changes = [change for each in entries if (change := _status_update(each))]
        lost = [each.id for each in entries if each.version is None]
        written = self._relay_store.write_back(state, changes, lost)
        yield "written"
        if written is None:
            return INTERRUPTED
        again = self._unwritten_rows.note([each.id for each in entries], written)
        done = self._store().run(calls.forget_dirty(dirty, number=written.number, again=again))
        yield "forgotten"
        if not done:
            return INTERRUPTED
        self.latest = _after(state, checkpoint, written.number, stamps=bool(changes))
        self.passed.append(Passed(direction=Direction.BACK, rows=len(dirty.entries)))
        return len(dirty.entries)


def relayed_row(row: Row[Any], now: int, unmarked: Lost | None = None) -> RelayedRow:
    """Return what the relay sends of a row; `now` is the time of its database, in ms.

    `unmarked` is what the server lost, if not all of these rows are marked.

    Raises InvalidTask for values that another program wrote and that no task can have.
    """
    is_paused = row.due == LARGEST_TIME
    values = dict(row._mapping) | ({"due": 0} if is_paused else {})
    task = new_task_of(values, now)
    fields = dict(task.fields)
    if row.decided == Decided.DEADLINE and (lost := fields.pop("on_signal", None)) is not None:
        fields["passed"] = lost
    if row.retry_times:
        fields["attempt"] = row.retry_times
    when, ms = task.when.encode()
    return RelayedRow(
        id=task.id,
        version=RowVersion(row.generation, row.revision),
        what=_target_state(row),
        hint=_hint(row, fields, unmarked),
        call=task.call,
        when="never" if is_paused else str(when),
        ms=int(ms),
        fields=fields,
    )


def _target_state(row: Row[Any]) -> str:
    if row.status != Status.WAITING:
        return FINAL_STATES[Status(row.status)]
    return "cancel" if row.wanted == DesiredState.CANCELLED else "waits"


def _hint(row: Row[Any], fields: Mapping[str, Argument], unmarked: Lost | None) -> str:
    is_unmarked = unmarked is not None and unmarked.has(row.stamp)
    words = {
        "moved": row.due is None,
        "rebuilt": row.todo == SyncState.REBUILD or is_unmarked,
        # Only its signal made it due; what is written later has another time.
        "signalled": str(fields.get("signalled", "")).startswith(f"{row.written} "),
    }
    return " ".join(word for word, holds in words.items() if holds)


def _after(
    state: RelayState, checkpoint: RedisCheckpoint, number: int, *, stamps: bool
) -> RelaySnapshot:
    """The state after a batch of this number."""
    stamp = number if stamps else state.stamp
    return RelaySnapshot(
        state._replace(number=number, stamp=stamp, waiting=True),
        checkpoint._replace(nonce=state.nonce, number=number, dirty=1),
    )


def _passed(page: RowBatch, refused: int) -> Passed:
    rebuilt = sum(row.todo == SyncState.REBUILD for row in page.rows)
    return Passed(direction=Direction.OUT, rows=len(page.rows), rebuilt=rebuilt, refused=refused)


def _status_update(entry: WriteBack) -> StatusUpdate | None:
    if entry.version is None:
        return None
    status, runs = _STATUS.get(entry.state, Status.WAITING), entry.state == "running"
    # A claim counts the attempt that it begins: of one that runs it is not over.
    is_last = runs or status in {Status.SUCCEEDED, Status.FAILED}
    return StatusUpdate(
        entry.id,
        entry.version,
        status,
        NEVER if entry.state == "paused" else entry.due,
        min(max(entry.attempt - is_last, 0), LARGEST_COUNT),
        entry.error.replace("\0", "\\x00") or None,  # PostgreSQL has no character NUL
        runs,
        entry.cancelling,
    )


def finish(steps: BatchSteps[T]) -> T:
    """Run the steps of a batch to its end; they are names of points, of use to tests only."""
    return drive(steps, _ignore, ())


def _ignore(_point: str) -> None:
    pass
