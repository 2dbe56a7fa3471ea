"""Writes many rows in one transaction, so that none holds up the others.

A row that the database refuses is left out, and so is one that another transaction has locked.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, Executable, Select

from expirebridge.ledger.db_errors import is_refusal, reason_of
from expirebridge.ledger.many_rows import Parameters, RowUpdate

T = TypeVar("T")
MOST_REASON: Final = 200
"""Characters of what a database says of a text that it refuses."""


class Write(Protocol):
    """Writes rows; each method returns why the database refuses some of them, by their ids."""

    def __call__(
        self, connection: Connection, update: RowUpdate, rows: Sequence[Parameters]
    ) -> dict[str, str]:
        """Write these values."""
        ...

    def to_ids(
        self, connection: Connection, statement: Executable, parameters: Parameters,
        ids: Sequence[str],
    ) -> dict[str, str]:  # fmt: skip
        """Execute a statement for the rows `b_ids`."""
        ...

    def each(
        self, connection: Connection, statement: Executable, rows: Sequence[Parameters]
    ) -> None:
        """Execute a statement for each of these rows that is not refused."""
        ...


def unless_refused(transaction: Callable[[Write], T]) -> T:
    """Run a transaction that writes its rows together; if one is refused, again, each alone."""
    try:
        return transaction(_Together())
    except Exception as error:
        if not is_refusal(error):
            raise
    return transaction(_Apart())


class _Together:
    def __call__(
        self, connection: Connection, update: RowUpdate, rows: Sequence[Parameters]
    ) -> dict[str, str]:
        if rows:
            update.execute(connection, rows)
        return {}

    def to_ids(
        self, connection: Connection, statement: Executable, parameters: Parameters,
        ids: Sequence[str],
    ) -> dict[str, str]:  # fmt: skip
        if ids:
            connection.execute(statement, {**parameters, "b_ids": ids})
        return {}

    def each(
        self, connection: Connection, statement: Executable, rows: Sequence[Parameters]
    ) -> None:
        if rows:
            connection.execute(statement, rows)


class _Apart:
    def __call__(
        self, connection: Connection, update: RowUpdate, rows: Sequence[Parameters]
    ) -> dict[str, str]:
        refused = {}
        for row in rows:
            fault = attempt(connection, update.each, row)
            if fault is not None and row["b_message"] is not None:
                fault = _without_text(connection, update, row, fault)
            if fault is not None:
                refused[str(row["b_id"])] = reason_of(fault)
        return refused

    def to_ids(
        self, connection: Connection, statement: Executable, parameters: Parameters,
        ids: Sequence[str],
    ) -> dict[str, str]:  # fmt: skip
        if not ids or attempt(connection, statement, {**parameters, "b_ids": ids}) is None:
            return {}
        tried = {id: attempt(connection, statement, {**parameters, "b_ids": [id]}) for id in ids}
        return {id: reason_of(fault) for id, fault in tried.items() if fault is not None}

    def each(
        self, connection: Connection, statement: Executable, rows: Sequence[Parameters]
    ) -> None:
        for row in rows:
            attempt(connection, statement, row)


def _without_text(
    connection: Connection, update: RowUpdate, row: Parameters, fault: BaseException
) -> BaseException | None:
    """Write a row whose text may be what is refused: in ASCII; else, why it could not be written.

    Returns why this is refused, too.
    """
    said = f"its error could not be written here: {reason_of(fault)[:MOST_REASON]}"
    for text in (row["b_message"], said):
        ascii_text = text.encode("ascii", "backslashreplace").decode()
        again = attempt(connection, update.each, row | {"b_message": ascii_text})
        if again is None:
            return None
        fault = again
    return fault


def attempt(connection: Connection, statement: Executable, row: Parameters) -> BaseException | None:
    """Execute a statement in a savepoint; returns the error if the database refuses that."""
    try:
        with connection.begin_nested():
            connection.execute(statement, row)
    except Exception as error:
        if not is_refusal(error):
            raise
        return error
    return None


def has_row_locks(connection: Connection) -> bool:
    """Return whether other transactions can lock rows; in SQLite they lock the whole database."""
    return connection.dialect.name != "sqlite"


def locked_of(
    connection: Connection, ids: Collection[str], free: Iterable[str], *, there: Executable,
    parameters: Mapping[str, Any],
) -> list[str]:  # fmt: skip
    """Return those of `ids` that another transaction has locked.

    `free` are those that were locked here; rows of the others may be gone: `there` selects those
    that are not.
    """
    missing = sorted(set(ids) - set(free))
    if not missing:
        return []
    return list(connection.scalars(there, {**parameters, "b_ids": missing}))


def passing_over_locks(query: Select[Any]) -> Select[Any]:
    """Lock the rows that a query finds, and leave out those that are locked.

    SQLite has no locks of rows.
    """
    return query.with_for_update(skip_locked=True)
