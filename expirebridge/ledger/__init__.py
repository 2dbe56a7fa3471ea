"""The ledger: tasks in a table of the application's own SQL database.

Needs the extra `sql`. Nothing else of expirebridge imports SQLAlchemy.
"""

from expirebridge.errors import CompletionRefused, LedgerError, LedgerUnreachable, LedgerUnsuitable

try:
    import sqlalchemy as _  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the ledger needs SQLAlchemy: pip install 'expirebridge[sql]'", name=error.name
    ) from None

from expirebridge.ledger.completion import complete
from expirebridge.ledger.ledger import Ledger
from expirebridge.ledger.rows import LedgerTask
from expirebridge.ledger.schema import ddl
from expirebridge.ledger.tables import Tables, extras, tables
from expirebridge.model.row_state import DesiredState, Status

__all__ = [
    "CompletionRefused",
    "DesiredState",
    "Ledger",
    "LedgerError",
    "LedgerTask",
    "LedgerUnreachable",
    "LedgerUnsuitable",
    "Status",
    "Tables",
    "complete",
    "ddl",
    "extras",
    "tables",
]
