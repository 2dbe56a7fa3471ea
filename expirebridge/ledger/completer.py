"""What lets a handler complete its own task."""

from dataclasses import dataclass
from functools import cache

from sqlalchemy import MetaData

from expirebridge.ledger.completion import complete
from expirebridge.ledger.tables import Tables, tables
from expirebridge.model.transactions import Transaction


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
