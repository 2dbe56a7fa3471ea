"""The one rule of cursors: "0" is where a walk begins, and where it is over.

With several partitions, one is walked over after the other. One that cannot be asked, or no longer,
is left out: LEFT_OUT says which.
"""

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from expirebridge.errors import PartitionsDiffer
from expirebridge.task.calls.call import PARTITIONS, Command, Steps, at_if_available

BEGINNING = "0"


class Page(Protocol):
    """A page of a scan."""

    @property
    def cursor(self) -> str:
        """The cursor of the next part; "0" if this was the last."""
        ...


class RecordPage(NamedTuple):
    """A part of a walk over records, as they are stored."""

    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    examined: int
    records: list[tuple[str, Mapping[str, bytes]]]
    """The id and the fields of each."""


P = TypeVar("P", bound=Page)


class Pages(Generic[P]):
    """A walk, page by page: `read` gives the call for the page that begins at a cursor.

    while page := (yield from pages.next()): ...
    """

    def __init__(self, read: Callable[[str], Command[P]], begin: str = BEGINNING) -> None:
        self._read = read
        self.cursor = begin
        """The cursor of the next page, as long as there is one."""
        self.over = False
        """True if the last page was read."""
        self._partition = 0
        self._count = 0
        """How many partitions there are; 0: that was not asked yet."""

    def next(self) -> Steps[P | None]:
        """Read the next page; None if there is none."""
        while not self.over:
            page = yield from self._page()
            self.cursor = BEGINNING if page is None else page.cursor
            if self.cursor == BEGINNING:
                self._partition += 1
                self.over = self._partition == self._count
            if page is not None:
                return page
        return None

    def _page(self) -> Steps[P | None]:
        while not self._count:
            self._count = yield from PARTITIONS
            try:
                return (yield from self._here())
            except PartitionsDiffer:
                if (yield from PARTITIONS) == self._count:
                    raise
                self._count = 0  # it was assumed, and is known now
        return (yield from self._here())

    def _here(self) -> Command[P | None]:
        return at_if_available(self._read(self.cursor), self._partition)
