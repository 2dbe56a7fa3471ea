"""The row of a handler that is called alone: it shows what the handler did with `complete_in`."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from expirebridge.ledger.row_check import outcome_after
from expirebridge.ledger.row_state import RowVersion
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.task.transactions import Transaction

if TYPE_CHECKING:
    from expirebridge.listener.execution.attempt import Attempt


class HandlerRow:
    """The row of one id in a ledger, in the database of the handler's own transaction.

    That is known once the handler calls `complete_in`: SQLAlchemy is imported only then. Without an
    `id` nothing is completed.
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
        from expirebridge.testing import row_completion  # noqa: PLC0415

        version = row_completion.version_of(session, self._ledger, self._id)
        if self._id is None:
            return
        self._session, self._version = session, self._version or version
        row_completion.complete(session, self._ledger, self._id, self._version, attempt)

    async def look_after(self, attempt: "Attempt", failed: AttemptOutcome) -> AttemptOutcome:
        """The outcome that a listener records for a failed attempt, by the row; the error stays."""
        if self._session is None:
            return failed
        from expirebridge.testing import row_completion  # noqa: PLC0415

        by_row = await row_completion.by_row_after(
            self._session, self._ledger, self._version, attempt
        )
        return outcome_after(failed, by_row)._replace(error=failed.error)
