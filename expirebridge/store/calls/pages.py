"""The one rule of cursors: "0" is where a walk begins, and where it is over."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from expirebridge.store.calls.call import Call, Steps

BEGINNING = "0"


class Page(Protocol):
    """A part of what is walked over."""

    @property
    def cursor(self) -> str:
        """Where the next part begins; "0" if this was the last."""
        ...


P = TypeVar("P", bound=Page)


class Pages(Generic[P]):
    """A walk, page by page: `read` gives the call for the page that begins at a cursor.

    while page := (yield from pages.next()): ...
    """

    def __init__(self, read: Callable[[str], Call[P]], begin: str = BEGINNING) -> None:
        self._read = read
        self.cursor = begin
        """Where the next page begins, as long as there is one."""
        self.over = False
        """Whether the last page was read."""

    def next(self) -> Steps[P | None]:
        """Read the next page; None if there is none."""
        if self.over:
            return None
        page = yield from self._read(self.cursor)
        self.cursor = page.cursor
        self.over = page.cursor == BEGINNING
        return page
