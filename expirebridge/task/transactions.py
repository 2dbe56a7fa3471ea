"""The types of transaction that the calls of a ledger take."""

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:  # without the extra `sql` nothing imports SQLAlchemy
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session


class DriverConnection(Protocol):
    """A connection of a driver or of Django, which waits for its answers."""

    def cursor(self) -> Any:
        """Return a new cursor."""
        ...

    def commit(self) -> None:
        """End the transaction."""
        ...


Transaction: TypeAlias = "Session | scoped_session[Any] | Connection | DriverConnection | str"
"""A Session or Connection of SQLAlchemy, a connection of a driver or of Django, or its alias."""
