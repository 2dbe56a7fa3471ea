"""The rows that a batch could not write: when they are tried again, and what the log says."""

import logging
import time
from collections.abc import Collection
from typing import Final

from expirebridge.ledger.relay_values import WrittenRows
from expirebridge.task.counting import plural
from expirebridge.task.log_fields import event

logger = logging.getLogger("expirebridge")

LOCKED_PAUSE: Final = 1.0
"""Seconds until a row is tried again that another transaction has locked."""
LONG: Final = 5.0
"""Seconds after which such a lock is reported."""
LONG_PAUSE: Final = 5.0
"""Seconds until it is tried again from then on."""
REFUSED_PAUSE: Final = 60.0
"""Seconds until a row is tried again that the database refuses to write."""


class UnwrittenRows:
    """Decides when rows are tried again that could not be written, and reports them.

    A row is locked for a moment by many an ordinary transaction: only long locks are reported, and
    each once.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """When each row that is locked was first met, by time.monotonic()."""
        self._reported: set[str] = set()

    def note(self, ids: Collection[str], written: WrittenRows) -> dict[str, float]:
        """Note what a batch of these rows left out; returns in how many seconds to try again."""
        for id in set(ids).difference(written.locked):
            self._since.pop(id, None)
            self._reported.discard(id)
        now = time.monotonic()
        waited = {id: now - self._since.setdefault(id, now) for id in written.locked}
        self._report_locked([id for id, seconds in waited.items() if seconds >= LONG])
        for id, reason in written.refused.items():
            logger.error(
                "the database refuses to write row %r of the ledger: %s", id, reason,
                extra=event("row not written", task=id, reason=reason),
            )  # fmt: skip
        pauses = {
            id: LONG_PAUSE if seconds >= LONG else LOCKED_PAUSE for id, seconds in waited.items()
        }
        return pauses | dict.fromkeys(written.refused, REFUSED_PAUSE)

    def _report_locked(self, ids: Collection[str]) -> None:
        news = sorted(set(ids) - self._reported)
        if not news:
            return
        self._reported |= set(news)
        logger.warning(
            "another transaction has locked row %r of the ledger%s for %g s: what happens to the "
            "task is written there when that ends", news[0],
            f", and {plural(len(news) - 1, 'other', 'others')}," if len(news) > 1 else "", LONG,
            extra=event("rows locked", task=news[0], count=len(news)),
        )  # fmt: skip
