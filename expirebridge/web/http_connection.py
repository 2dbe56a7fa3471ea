"""The HTTP connections of the command `dashboard`, limited in number and in time.

uvicorn itself waits without a limit for a request's end, and for an answer to be read.
"""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 400
"""Twice as many as the open pages that are kept up to date. Others are closed at once."""
TO_ASK = 10.0
"""Seconds in which a request must arrive, whole."""
TO_READ = 30.0
"""Seconds in which a client must read its answer, once that is too long to be buffered."""


class Connection(H11Protocol):
    """A connection that is closed if its client keeps it waiting."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or close it if there are too many."""
        super().connection_made(transport)
        self._asking = _Deadline(self.loop, TO_ASK, transport.abort)
        self._reading = _Deadline(self.loop, TO_READ, transport.abort)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._asking.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._asking.stop()
        self._reading.stop()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; more of it does not make its deadline later."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be here already, or until the answer is read."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        self._reading.start()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        self._reading.stop()

    def _look(self) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            self._asking.start()
        else:
            self._asking.stop()


class _Deadline:
    """Calls something unless it is stopped in time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[[], None]
    ) -> None:
        self._loop, self._seconds, self._call = loop, seconds, call
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._call)

    def stop(self) -> None:
        """Never call it, unless it begins again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
