"""The relay: carries rows to the server, and back what happened there, in numbered passes.

Each pass is a generator that stops between any two of its steps: a test can leave it there for
ever, as a process does that dies. See docs/internals/outbox-relay.md for why each step is there.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Row

from expirebridge.errors import InvalidTask
from expirebridge.hooks import Direction, Passed
from expirebridge.ledger.binder import Binder
from expirebridge.ledger.carrying import NEVER, carried
from expirebridge.ledger.entries import Carried, RelayState, RowBatch, StatusUpdate
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.model.log_fields import event
from expirebridge.model.row_state import Status, SyncState
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.commands import ledger as calls
from expirebridge.store.commands.ledger import (
    RedisCheckpoint,
    RelayCode,
    RelayedRow,
    RelayResult,
    WriteBack,
)
from expirebridge.store.stepping import drive

logger = logging.getLogger("expirebridge")

T = TypeVar("T")
Pass = Generator[str, None, T]
"""A pass: it yields the name of each step that is done, and returns how many rows it carried."""
INTERRUPTED = -1
"""What a pass returns that another came before: it is to be made again."""

TAKEN = "its id belongs to a task that is not of the ledger"
_STATUS = {
    "succeeded": Status.SUCCEEDED,
    "failed": Status.FAILED,
    "cancelled": Status.CANCELLED,
}


class RelaySnapshot(NamedTuple):
    """What both sides know of passes."""

    numbers: RelayState
    known: RedisCheckpoint

    @property
    def is_to_carry(self) -> bool:
        """Whether rows wait to be carried, or the server has lost any."""
        return self.numbers.waiting or self.numbers.unsorted or self.seems_lost

    @property
    def seems_lost(self) -> bool:
        """Whether rows were carried, or written to, by a pass that the server has not seen."""
        return self.known.number < self.numbers.stamp


class Relay:
    """Makes passes between one ledger and one partition of one server.

    Several can: of two that make a pass at once, one finds that the other did.
    """

    def __init__(
        self, passbook: RelayStore, store: Callable[[], Store], settings: Settings, binder: Binder
    ) -> None:
        self._passbook = passbook
        self._store = store
        self._settings = settings
        self._binder = binder
        self.passed: deque[Passed] = deque(maxlen=1000)
        """The passes that were made, for hooks: whoever tells them takes them from here."""

    def bind(self, numbers: RelayState | None = None) -> RelaySnapshot:
        """What both sides know of passes. Raises LedgerUnsuitable if they are not each other's.

        The ledger's side is read first, here or by the caller: a pass that ends meanwhile must not
        seem to be of another.
        """
        numbers = numbers or self._passbook.read()
        known = self._store().run(calls.read_ledger())
        if numbers is None:
            self._binder.begin(known)
            return self.bind()
        self.check(numbers, known)
        return RelaySnapshot(numbers, known)

    def check(self, numbers: RelayState, known: RedisCheckpoint) -> None:
        """Raise LedgerUnsuitable unless the two are each other's."""
        if known.number > numbers.number:
            numbers = self._passbook.read() or numbers
        self._binder.check(numbers, known)

    def rebind(self) -> None:
        """Bind ledger and server to each other again; all rows are carried again."""
        known = self._store().run(calls.read_ledger())
        nonce = self._binder.rebind(above=known.number)
        self._store().run(calls.bind_ledger(nonce))

    # From rows to the server

    def carry(self, found: RelaySnapshot | None = None) -> Pass[int]:
        """Carry one page of rows, if some wait, or if the server has lost any.

        `found` is what was read a moment ago. Raises LedgerUnsuitable, a ServerError, or
        SQLAlchemy's errors.
        """
        numbers, known = found or self.bind()
        yield "read"
        if numbers.unsorted:
            self._passbook.sort()
            yield "sorted"
            numbers, known = self.bind()
        if not numbers.waiting and known.number >= numbers.stamp:
            return 0
        number = self._passbook.take(numbers, seen=known.number)
        yield "number taken"
        if number is None:
            return INTERRUPTED
        page = self._passbook.page(calls.MAX_ROWS)
        yield "page read"
        sent, refused = self._read(page)
        landed = self._store().run(
            calls.relay(
                [row for _, row in sent], found=known, nonce=numbers.nonce, number=number,
                settings=self._settings,
            )
        )  # fmt: skip
        yield "carried"
        if landed is None:
            return INTERRUPTED
        done = [
            _concluded(page.rows[at], landing)
            for (at, _), landing in zip(sent, landed, strict=True)
        ]
        self._report([each for each in refused + done if each.refusal])
        is_last = self._passbook.conclude(number, done + refused)
        yield "stamped"
        if not is_last:
            return INTERRUPTED
        self.passed.append(_passed(page, sum(each.refusal is not None for each in done + refused)))
        return len(page.rows)

    def _read(self, page: RowBatch) -> tuple[list[tuple[int, RelayedRow]], list[Carried]]:
        """What can be carried, each with its place in the page; and what is refused."""
        sent, refused = [], []
        for at, row in enumerate(page.rows):
            try:
                sent.append((at, carried(row, page.now)))
            except InvalidTask as error:
                # One that has ended was refused before; nothing of it is there to be carried.
                reason = str(error) if row.status == Status.WAITING else None
                refused.append(Carried(row, None, reason))
        return sent, refused

    def _report(self, refused: list[Carried]) -> None:
        for each in refused:
            logger.error(
                "row %r of the ledger is refused: %s", each.row.id, each.refusal,
                extra=event("row refused", task=each.row.id, reason=each.refusal),
            )  # fmt: skip

    # From the server to rows

    def bring_back(self, found: RelaySnapshot | None = None) -> Pass[int]:
        """Write to rows what happened to their tasks, one page of it. Raises as `carry`."""
        numbers, known = found or self.bind()
        yield "read"
        if known.number < numbers.stamp or not known.dirty:
            return 0
        number = self._passbook.take(numbers, seen=known.number)
        yield "number taken"
        if number is None:
            return INTERRUPTED
        dirty = self._store().run(calls.read_dirty(calls.MAX_ROWS))
        yield "dirty read"
        if dirty.known[:2] != (numbers.nonce, known.number):
            return INTERRUPTED
        lessons = [lesson for each in dirty.entries if (lesson := _lesson(each))]
        lost = [each.id for each in dirty.entries if each.version is None]
        is_last = self._passbook.learn(number, lessons, lost)
        yield "written"
        if not is_last:
            return INTERRUPTED
        done = self._store().run(calls.forget_dirty(dirty, number=number))
        yield "forgotten"
        if not done:
            return INTERRUPTED
        self.passed.append(Passed(direction=Direction.BACK, rows=len(dirty.entries)))
        return len(dirty.entries)


def _passed(page: RowBatch, refused: int) -> Passed:
    rebuilt = sum(row.todo == SyncState.REBUILD for row in page.rows)
    return Passed(direction=Direction.OUT, rows=len(page.rows), rebuilt=rebuilt, refused=refused)


def _concluded(row: Row[Any], landed: RelayResult) -> Carried:
    taken = landed.landing is RelayCode.TAKEN
    return Carried(row, landed.due, TAKEN if taken else None)


def _lesson(learnt: WriteBack) -> StatusUpdate | None:
    if learnt.version is None:
        return None
    status, runs = _STATUS.get(learnt.state, Status.WAITING), learnt.state == "running"
    # A claim counts the attempt that it begins: of one that runs it is not over.
    is_last = runs or status in {Status.SUCCEEDED, Status.FAILED}
    return StatusUpdate(
        learnt.id,
        learnt.version,
        status,
        NEVER if learnt.state == "paused" else learnt.due,
        max(learnt.attempt - is_last, 0),
        learnt.error or None,
        runs,
        learnt.cancelling,
    )


def finish(steps: Pass[T]) -> T:
    """Make a pass to its end: its steps are names of points, of use to tests only."""
    return drive(steps, _ignore, ())


def _ignore(_point: str) -> None:
    pass
