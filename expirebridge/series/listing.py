"""The walk of `list_series`: each partition has its series in order, and the first is taken."""

from functools import partial

from expirebridge.errors import InvalidTask
from expirebridge.series import calls as series_commands
from expirebridge.series.values import Series, SeriesListing
from expirebridge.settings import Settings
from expirebridge.task.calls.call import CHUNK, LEFT_OUT, Steps, at_if_available
from expirebridge.task.operations.listing import (
    PageChunk,
    PageCursor,
    PageStream,
    encode_spots,
    is_rank,
    over_partitions,
    read_ranks,
    rows_of_each,
    take,
)
from expirebridge.task.task import to_ms

FIRST = "0"
"""The cursor of the first page."""


class SeriesWalk:
    """Reads pages of the series of all partitions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def find(self, limit: int, cursor: str | None) -> Steps[SeriesListing]:
        """Read a page of series. Raises InvalidTask for values that cannot be."""
        if not isinstance(limit, int) or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        if cursor is not None and not is_rank(cursor) and read_ranks(cursor) is None:
            raise _foreign(cursor)
        begin = cursor or FIRST

        def list_in(count: int) -> Steps[SeriesListing]:
            if count == 1:
                return self._list_one(limit, begin)
            return self._list_several(count, limit, begin)

        return over_partitions(list_in)

    def _list_several(self, count: int, limit: int, cursor: str) -> Steps[SeriesListing]:
        """The series of all partitions, those first whose next tick is first."""
        spots = [PageCursor()] * count if cursor == FIRST else read_ranks(cursor)
        if spots is None or len(spots) != count:
            raise _foreign(cursor)
        streams = [
            PageStream(partial(self._read_part, number, count), _order, spot)
            for number, spot in enumerate(spots)
        ]
        found, _ = yield from take(streams, limit=limit)
        left_out = yield from LEFT_OUT
        if all(stream.is_over for stream in streams):
            return SeriesListing(series=found, left_out=left_out)
        cursor = encode_spots([each.spot for each in streams])
        return SeriesListing(series=found, cursor=cursor, left_out=left_out)

    def _read_part(self, number: int, count: int, cursor: str) -> Steps[PageChunk[Series] | None]:
        call = series_commands.series_page(cursor, self._settings.lease, rows_of_each(count))
        page = yield from at_if_available(call, number, fail_fast=True)
        if page is None:
            return None
        series = self._read(page)
        return PageChunk(series, page.cursor, len(series))

    def _list_one(self, limit: int, cursor: str) -> Steps[SeriesListing]:
        if not is_rank(cursor):
            raise _foreign(cursor)
        found: list[Series] = []
        while len(found) < limit:
            count = min(limit - len(found), CHUNK)
            page = yield from series_commands.series_page(cursor, self._settings.lease, count)
            found += self._read(page)
            cursor = page.cursor
            if cursor == FIRST:
                return SeriesListing(series=found)
        return SeriesListing(series=found, cursor=cursor)

    def _read(self, page: series_commands.SeriesPage) -> list[Series]:
        key_ring = self._settings.key_ring
        return [Series.of(one, page.now, key_ring=key_ring) for one in page.series]


def _foreign(cursor: str) -> InvalidTask:
    return InvalidTask(f"cursor={cursor!r}: give that of the page before")


def _order(series: Series) -> float:
    return to_ms(series.due) if series.due is not None and series.paused is None else float("inf")
