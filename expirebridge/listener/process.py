"""The event loop: asyncio's own, which also wakes up on time.

A listener sleeps until a task is due. asyncio's loop on Linux rounds each sleep up to a whole
millisecond, because `epoll` takes no less; for most tasks that was the greater part of their
lateness (see docs/adr/0006).
"""

import asyncio
import select
import selectors


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop as a listener wants it; where there is no epoll, asyncio's own is exact."""
    if not hasattr(select, "epoll"):
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(PunctualSelector())


class PunctualSelector(selectors.EpollSelector):
    """Sleeps in microseconds: `select` waits until epoll has something to report, or time is over.

    An epoll instance is itself a file that becomes readable.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as any selector does, for `timeout` seconds at most."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # It is the first file that the loop opens, so its number is one that `select` can take.
        select.select([self.fileno()], [], [], timeout)
        return super().select(0)
