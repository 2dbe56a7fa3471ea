"""The ledger: tasks in a table of the application's own SQL database.

The public names need the extra `sql`; they are imported when they are used. Nothing else of
expirebridge imports SQLAlchemy.
"""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import names_of

if TYPE_CHECKING:
    from expirebridge.errors import (
        CompletionRefused,
        LedgerError,
        LedgerUnreachable,
        LedgerUnsuitable,
    )
    from expirebridge.ledger.completion import complete
    from expirebridge.ledger.ledger import Ledger
    from expirebridge.ledger.rows import DesiredState, LedgerTask, Status
    from expirebridge.ledger.schema import ddl
    from expirebridge.ledger.sql_tables import Tables, extras, tables

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

_NAMES = {
    "errors": "CompletionRefused LedgerError LedgerUnreachable LedgerUnsuitable",
    "ledger.completion": "complete",
    "ledger.ledger": "Ledger",
    "ledger.rows": "DesiredState LedgerTask Status",
    "ledger.schema": "ddl",
    "ledger.sql_tables": "Tables extras tables",
}

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    _find = names_of(__name__, _NAMES)

    def __getattr__(name: str) -> object:
        try:
            return _find(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "sqlalchemy":
                raise
            raise ModuleNotFoundError(
                "the ledger needs SQLAlchemy: pip install 'expirebridge[sql]'", name=error.name
            ) from None
