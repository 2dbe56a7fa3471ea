"""How many rows a batch to the server carries."""

from typing import Final

from expirebridge.ledger import calls

MOST_DIVIDED: Final = 64
"""Into so many parts a page is divided at most."""


class PageSize:
    """How many rows a batch carries: fewer after one that another batch came before.

    Two listeners that relay at once interrupt each other, and the longer their batches take, the
    more often: with long ones neither would ever end. One of few rows ends in between.
    """

    def __init__(self) -> None:
        self._divisor = 1

    @property
    def rows(self) -> int:
        """The most rows of the next batch."""
        return max(calls.MAX_ROWS // self._divisor, 1)

    def note_interrupted(self) -> None:
        """Take fewer: the numbers were no longer those with which this batch began."""
        self._divisor = min(4 * self._divisor, MOST_DIVIDED)

    def note_completed(self) -> None:
        """Take more again."""
        self._divisor = max(self._divisor // 2, 1)
