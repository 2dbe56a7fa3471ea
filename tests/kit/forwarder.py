"""What stands between clients and a real server, and leads each connection there.

What becomes of the bytes on their way is for those who derive from it: `tests/kit/proxy.py` cuts
connections at a certain reply, `tests/faults/link.py` is a network that fails.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from expirebridge.embedded.server import HOST
from tests.kit.patience import PATIENCE


class Forwarder(ABC):
    """Forwards to the server on `port`, in a thread of its own, so that sync clients can use it."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._connections: list[asyncio.Task[None]] = []
        self._up = threading.Event()
        self._stop = asyncio.Event()
        name = type(self).__name__.lower()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name)
        self._loop: asyncio.AbstractEventLoop
        self.port: int

    @property
    def url(self) -> str:
        """The URL of database 1, by this way."""
        return f"redis://{HOST}:{self.port}/1"

    @abstractmethod
    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Lead one connection to the server, until it ends."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(PATIENCE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # In the forwarder's own thread

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with await asyncio.start_server(self._accept, HOST, 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._up.set()
            await self._stop.wait()
            for connection in self._connections:
                connection.cancel()
            ends = await asyncio.gather(*self._connections, return_exceptions=True)
        _raise_first(ends)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(asyncio.create_task(self._connect(reader, writer)))


async def until_either_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Forward both ways until one of them ends, by itself or by an error, which is raised."""
    pumps = [asyncio.create_task(direction) for direction in directions]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        ends = await asyncio.gather(*pumps, return_exceptions=True)
    _raise_first(ends)


def _raise_first(ends: list[BaseException | None]) -> None:
    """Raise the first error among these ends; to be cancelled is none."""
    for end in ends:
        if isinstance(end, Exception):
            raise end
