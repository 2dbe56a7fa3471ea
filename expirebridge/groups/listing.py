"""The walk of `list_groups`: each partition has its groups in order, and the first is taken."""

from functools import partial
from math import inf

from expirebridge.groups import calls
from expirebridge.groups.values import Group, GroupListing
from expirebridge.task.calls.call import LEFT_OUT, Steps, at_if_available
from expirebridge.task.operations.listing import (
    PageChunk,
    PageCursor,
    PageStream,
    over_partitions,
    rows_of_each,
    take,
)
from expirebridge.task.task import to_ms


def find_groups(limit: int) -> Steps[GroupListing]:
    """Find up to `limit` groups of all partitions: unended ones, then those that ended last."""
    return over_partitions(partial(_find, limit))


def _find(limit: int, count: int) -> Steps[GroupListing]:
    streams = [
        PageStream(partial(_read, number, count), _order, PageCursor()) for number in range(count)
    ]
    found, _ = yield from take(streams, limit=limit + 1)
    left_out = yield from LEFT_OUT
    complete = len(found) <= limit and not left_out
    return GroupListing(groups=found[:limit], complete=complete, left_out=left_out)


def _read(number: int, count: int, cursor: str) -> Steps[PageChunk[Group] | None]:
    call = calls.list_groups(cursor, rows_of_each(count))
    page = yield from at_if_available(call, number, fail_fast=True)
    return page and PageChunk(page.groups, page.cursor, len(page.groups))


def _order(group: Group) -> float:
    """As each partition has them."""
    return -to_ms(group.ended) if group.ended is not None else -inf
