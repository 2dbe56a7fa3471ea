"""The calls of series, whose ticks are tasks only later."""

from collections.abc import Callable

from expirebridge.series.calls import series_page
from expirebridge.series.replies import NEVER
from expirebridge.settings import Settings
from expirebridge.store.record_values import call_of
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.inspection import StoredCall
from expirebridge.task.task import UNCLAIMED


def add_calls(
    add: Callable[[StoredCall], None], _settings: Settings, due_within: float | None
) -> Steps[int]:
    """Add the series that go on, or are paused, and of which no tick waits now.

    None if only what is due in a time is asked for: they have no due time.
    """
    cursor = None if due_within is None else "0"
    while cursor != "0":
        page = yield from series_page(cursor or "0", 0)
        for one in page.series:
            if one.waiting not in UNCLAIMED and (one.place < NEVER or "paused" in one.record):
                add(StoredCall(one.id, *call_of(one.record), None))
        cursor = page.cursor
    return 0
