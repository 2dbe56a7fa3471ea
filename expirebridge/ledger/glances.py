"""Looks at the ledger that several partitions share: those that look at once ask once."""

import threading
import time

from expirebridge.ledger.entries import Numbers
from expirebridge.ledger.relay_store import Passbook


class Glances:
    """What the ledger knows of the passes of all partitions.

    A look is answered by whatever was read after it was asked for, by whichever partition.
    """

    def __init__(self, passbook: Passbook) -> None:
        self._passbook = passbook
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._numbers: dict[int, Numbers] = {}

    def of(self, partition: int, since: float) -> Numbers | None:
        """The numbers of a partition, read after `since` by time.monotonic(); None before the
        first pass. Rows that belong nowhere yet are sorted. Raises SQLAlchemy's errors.
        """
        with self._lock:
            if self._read_at < since:
                began = time.monotonic()
                self._numbers = self._read()
                self._read_at = began
            return self._numbers.get(partition)

    def _read(self) -> dict[int, Numbers]:
        numbers = self._passbook.read_all()
        if any(each.unsorted for each in numbers.values()):
            self._passbook.sort()
            numbers = self._passbook.read_all()
        return numbers
