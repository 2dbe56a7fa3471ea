"""Joins what Redis and a ledger list of series, page by page."""

from expirebridge.errors import InvalidTask
from expirebridge.series.values import Series, SeriesListing
from expirebridge.task.task import to_ms

SEPARATOR = "~"
"""Between the cursor of Redis and that of the ledger: neither has this character."""


def cursors_in(cursor: str | None) -> tuple[str | None, str | None]:
    """The positions in Redis and in the ledger: None is the beginning, and empty text the end.

    Raises InvalidTask for a foreign cursor.
    """
    if cursor is None:
        return None, None
    here, separator, there = cursor.rpartition(SEPARATOR)
    if not separator or not (here or there):
        raise InvalidTask(f"cursor={cursor!r}: give that of the page before")
    return here, there


def joined(here: SeriesListing | None, there: SeriesListing | None) -> SeriesListing:
    """A page of both; those first whose next tick is first. None: that one was over before."""
    pages = [page for page in (here, there) if page is not None]
    cursors = [(page.cursor or "") if page is not None else "" for page in (here, there)]
    return SeriesListing(
        series=sorted((one for page in pages for one in page.series), key=_order),
        cursor=SEPARATOR.join(cursors) if any(cursors) else None,
        left_out=here.left_out if here is not None else (),
    )


def _order(series: Series) -> float:
    return to_ms(series.due) if series.due is not None and series.paused is None else float("inf")
