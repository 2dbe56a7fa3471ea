"""The rows of a test's ledger, as the kit uses them: the ledger gives them in its `testing`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, cast

from expirebridge.capabilities import given
from expirebridge.listener.execution.attempt import RowLookup
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.task import Task

T = TypeVar("T")


class CarriedRows(RowLookup, Protocol):
    """The rows of a ledger, which are carried to the test's database and written back to."""

    awaits: bool
    """True if the methods of this class are to be called by `run`, in an event loop."""
    undone: set[str]
    """Tasks that were carried, and whose rows were rolled back since."""
    kept_back: list[Task]
    """The rows that are due too late to be carried yet, as they were when rows were carried last,
    the soonest first."""

    @property
    def is_elsewhere(self) -> bool:
        """True if the transaction belongs to another thread, in which `run` calls."""
        ...

    async def run(self, method: Callable[[], T]) -> T:
        """Call one of the other methods in an event loop."""
        ...

    def exchange(self) -> None:
        """Make ticks of series, carry rows, and write back how tasks ended, until all is done."""
        ...

    def next_moment(self) -> int | None:
        """The ms when the next tick of a series is to be made, or the next row comes near; None if
        none is, and none does."""
        ...

    def bring_near(self, id: str) -> None:
        """Carry the row of this task, if there is one, also if it is kept back."""
        ...


class GivesRows(Protocol):
    """A module of a capability that keeps rows beside Redis."""

    def carried_rows(
        self, source: object, store: Store, settings: Settings
    ) -> AbstractContextManager[CarriedRows]:
        """Carry the rows in a database or a transaction, for a block."""
        ...

    def row_of(self, settings: Settings, id: str | None) -> RowLookup:
        """Return the row of a handler that is called alone; without an `id`, of none."""
        ...


def rows_in(
    source: object, store: Store, settings: Settings
) -> AbstractContextManager[CarriedRows]:
    """Carry the rows in this database or transaction, for a block; see `Clock.use_ledger`."""
    [ledger] = cast("tuple[GivesRows, ...]", given("testing"))
    return ledger.carried_rows(source, store, settings)


def row_of(settings: Settings, id: str | None) -> RowLookup | None:
    """Return the row of a handler that is called alone; None if nothing keeps rows."""
    modules = cast("tuple[GivesRows, ...]", given("testing"))
    return next((module.row_of(settings, id) for module in modules), None)
