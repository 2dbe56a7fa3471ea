"""Runs a handler by itself with its row of the ledger, and returns the row's view of it."""

from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.util import greenlet_spawn

from expirebridge.ledger.completion import Completer
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.row_check import outcome_by_row
from expirebridge.ledger.rows import RowVersion
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.ledger.statements import statements
from expirebridge.ledger.testing.transactions import seen_after
from expirebridge.ledger.transaction import adapter_of
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.task.transactions import Transaction


def version_of(session: Transaction, ledger: str, id: str | None) -> RowVersion:
    """The version that a claim would find in this row; nothing is sent without an `id`.

    Raises InvalidTask for what is no transaction.
    """
    tables = own_tables()
    adapter = adapter_of(session, tables.task)
    get = statements(tables, adapter.dialect.name).get
    rows = [] if id is None else adapter.rows(get, {"b_ledger": ledger, "b_id": id})
    return RowVersion(rows[0]["generation"], rows[0]["revision"]) if rows else RowVersion(0, 0)


def complete(session: Transaction, ledger: str, id: str, version: RowVersion, attempt: int) -> None:
    """Complete the row in this transaction. Raises CompletionRefused."""
    Completer(ledger, id, version.generation, version.revision, attempt)(session)


async def by_row_after(
    session: Transaction, ledger: str, version: RowVersion | None, attempt: Attempt
) -> AttemptOutcome | None:
    """The listener's outcome from the row, after an attempt failed that completed it in this
    session; None if the row says nothing, or cannot be read."""
    try:
        with seen_after(session) as (transactions, awaits):
            relay_store = RelayStore(transactions, own_tables(), name=ledger)
            ask = partial(relay_store.ask, [attempt.claimed.id])
            rows = await greenlet_spawn(ask) if awaits else ask()
    except SQLAlchemyError:
        return None
    return outcome_by_row(attempt, version, rows.get(attempt.claimed.id))
