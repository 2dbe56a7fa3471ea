"""Gives the rows of a ledger to the testing kit, which does by hand what a listener does.

SQLAlchemy is imported only where there is a ledger.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger.row_check import outcome_after
from expirebridge.ledger.rows import RowVersion
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.transactions import Transaction

if TYPE_CHECKING:
    from expirebridge.ledger.testing.rows import Rows
    from expirebridge.listener.execution.attempt import Attempt


@contextmanager
def carried_rows(source: object, store: Store, settings: Settings) -> "Iterator[Rows]":
    """Relay between a ledger and the test's database, for a block, and delete its rows at the end.

    `source` is the ledger's database, or a transaction in it. What can be read now is carried now.

    Raises TravelError if the ledger is none of tests, LedgerUnsuitable for tables that are missing
    or of another version, InvalidTask for what is no database or transaction, and InvalidSetting
    for a URL that cannot be used.
    """
    from expirebridge.ledger.sql_types import moved  # noqa: PLC0415
    from expirebridge.ledger.testing.rows import Rows  # noqa: PLC0415
    from expirebridge.ledger.testing.transactions import transactions_of  # noqa: PLC0415

    with transactions_of(source) as found:
        rows = Rows(found, store, settings)
        with moved(rows.ahead):
            if not rows.awaits:
                try:
                    rows.exchange()
                except LedgerUnsuitable as error:
                    if isinstance(source, str) and "://" not in source and settings.ledger is None:
                        raise LedgerUnsuitable(
                            f"{error}. EXPIREBRIDGE['LEDGER'] is not set in this project: without "
                            "a ledger, leave use_ledger out"
                        ) from error
                    raise
            try:
                yield rows
            finally:
                rows.clear()


class HandlerRow:
    """The row of one id in a ledger, in the database of the handler's own transaction.

    It shows what a handler that is called alone did with `complete_in`. The database is known once
    the handler calls that: SQLAlchemy is imported only then. Without an `id` nothing is completed.
    """

    def __init__(self, ledger: str, id: str | None) -> None:
        self._ledger = ledger
        self._id = id
        self._session: Transaction | None = None
        self._version: RowVersion | None = None
        """As it was before the handler completed it."""

    async def look_up(self, attempt: "Attempt") -> AttemptOutcome | None:
        """Its handler is called whatever the row says."""

    def completer_for(self, attempt: "Attempt") -> Callable[[Transaction], None]:
        """The function that completes the row in a transaction of its handler."""
        return partial(self._complete, attempt.claimed.attempt)

    def _complete(self, attempt: int, session: Transaction) -> None:
        """Raises InvalidTask for what is no transaction, and CompletionRefused."""
        from expirebridge.ledger.testing import row_completion  # noqa: PLC0415

        version = row_completion.version_of(session, self._ledger, self._id)
        if self._id is None:
            return
        self._session, self._version = session, self._version or version
        row_completion.complete(session, self._ledger, self._id, self._version, attempt)

    async def look_after(self, attempt: "Attempt", failed: AttemptOutcome) -> AttemptOutcome:
        """The outcome that a listener records for a failed attempt, by the row; the error stays."""
        if self._session is None:
            return failed
        from expirebridge.ledger.testing import row_completion  # noqa: PLC0415

        by_row = await row_completion.by_row_after(
            self._session, self._ledger, self._version, attempt
        )
        return outcome_after(failed, by_row)._replace(error=failed.error)


def row_of(settings: Settings, id: str | None) -> HandlerRow:
    """Return the row of an attempt that has no claim, in the ledger of these settings."""
    return HandlerRow(settings.ledger_name, id)
