"""Completes a task in the transaction of its handler."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import MetaData

from expirebridge.errors import CompletionRefused
from expirebridge.ledger.rows import DesiredState, Row, Status
from expirebridge.ledger.sql_tables import Tables, tables
from expirebridge.ledger.statements import statements
from expirebridge.ledger.transaction import adapter_of
from expirebridge.task.transactions import Transaction


def complete(
    transaction: Transaction,
    tables: Tables,
    *,
    ledger: str,
    id: str,
    generation: int,
    revision: int,
    attempt: int,
) -> None:
    """Set a task's status to succeeded, as part of the caller's transaction.

    `transaction` is what `Ledger.make_task` takes. `generation` and `revision` are those that the
    claim of this attempt found; `attempt` is its number. Of two attempts that do this at once, the
    database lets one wait for the other's commit, and then refuses it.

    Raises CompletionRefused if the task was completed, cancelled, rescheduled or replaced
    meanwhile, or if its row is gone. Let it pass, so that the transaction is rolled back.
    """
    adapter = adapter_of(transaction, tables.task)
    ours = statements(tables, adapter.dialect.name)
    named: dict[str, Any] = {"b_ledger": ledger, "b_id": id}
    fence = {
        "b_generation": generation,
        "b_revision": revision,
        "b_retry_times": max(attempt - 1, 0),
    }
    if adapter.execute(ours.complete, named | fence) == 0:
        rows = adapter.rows(ours.get, named)
        reason = _reason(rows[0] if rows else None, generation, revision)
        raise CompletionRefused(f"task {id!r} {reason}: what its handler did must be rolled back")


def _reason(row: Row | None, generation: int, revision: int) -> str:
    if row is None:
        return "has no row any more"
    if row["generation"] != generation:
        return "was replaced"
    if row["status"] != Status.WAITING:
        return f"is {Status(row['status']).name.lower()} already"
    if row["wanted"] == DesiredState.CANCELLED:
        return "was cancelled"
    if row["revision"] != revision:
        return "was rescheduled"
    return "was changed by another transaction"


# The means by which a handler completes its own task.


@dataclass(frozen=True, slots=True)
class Completer:
    """Completes the task of one attempt. It can be sent to another process."""

    ledger: str
    id: str
    generation: int
    revision: int
    attempt: int

    def __call__(self, session: Transaction) -> None:
        """Set the status in the transaction of `session`. Raises CompletionRefused."""
        complete(
            session, _tables(), ledger=self.ledger, id=self.id, generation=self.generation,
            revision=self.revision, attempt=self.attempt,
        )  # fmt: skip


@cache
def _tables() -> Tables:
    return tables(MetaData())
