"""Where the relay's transactions come from: an engine, or something that stands for one."""

from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection


class Transactions(Protocol):
    """What an Engine of SQLAlchemy has of this, and the open transaction of a test as well."""

    def connect(self) -> AbstractContextManager[Connection]:
        """A connection that reads; nothing is left of its transaction."""
        ...

    def begin(self) -> AbstractContextManager[Connection]:
        """A transaction, which is committed when the block ends, or rolled back if it raises."""
        ...
