"""The migration operation that creates the ledger's tables, and whether they are there."""

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation

from expirebridge.contrib.django.settings import ledger_alias

MARK = "expirebridge_schema"
"""The table whose row says that all are there."""


class CreateLedger(Operation):
    """Creates the ledger's tables in the database of its alias, unless they are there.

    It does nothing in other databases, without a ledger, and where a router forbids it. Undone, it
    drops the tables with all their rows.
    """

    reversible = True
    reduces_to_sql = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model stands for these tables."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Create the tables."""
        connection = schema_editor.connection
        if _holds_ledger(connection, app_label) and not are_there(connection):
            from expirebridge.ledger.schema import creation  # noqa: PLC0415 - SQLAlchemy

            for statement in creation(_dialect_of(connection)):
                schema_editor.execute(statement, params=None)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Drop the tables."""
        connection = schema_editor.connection
        if _holds_ledger(connection, app_label) and are_there(connection):
            from expirebridge.ledger.schema import removal  # noqa: PLC0415 - SQLAlchemy

            for statement in removal():
                schema_editor.execute(statement, params=None)

    def describe(self) -> str:
        """Say what it does, for `manage.py migrate --plan`."""
        return "Create the ledger's tables, where EXPIREBRIDGE names a ledger"


def are_there(connection: Any) -> bool:
    """True if a database has the ledger's tables."""
    with connection.cursor() as cursor:
        return MARK in connection.introspection.table_names(cursor)


def _holds_ledger(connection: Any, app_label: str) -> bool:
    alias = ledger_alias()
    return bool(connection.alias == alias and router.allow_migrate(alias, app_label))


def _dialect_of(connection: Any) -> str:
    if connection.vendor == "mysql" and connection.mysql_is_mariadb:
        return "mariadb"
    return str(connection.vendor)
