"""A network between clients and a server that can be cut, held, slowed down and led elsewhere.

It knows nothing of what passes; `tests/proxy.py` is for faults at a certain reply.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from expirebridge.server import HOST
from tests.witness import PATIENCE

SLICE = 700
"""Bytes that a slow link carries at a time."""


class Link:
    """Forwards to the server on `port`, in a thread of its own. `url` names its database 1.

    With `delay`, a range in seconds, each piece takes so long, and is cut into slices.
    """

    def __init__(self, port: int, *, delay: tuple[float, float] | None = None) -> None:
        self._server_port = port
        self._delay = delay
        self._chance = random.Random(port)  # noqa: S311 - for a test
        self._connections: dict[asyncio.Task[None], asyncio.Event] = {}
        """Each with the event that nothing passes it any longer."""
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="link")
        self._loop: asyncio.AbstractEventLoop
        self._passable: asyncio.Event
        self._stop: asyncio.Event
        self.port: int

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/1"

    @contextmanager
    def partitioned(self) -> Iterator[None]:
        """Let nothing pass while the block runs; what was sent then arrives afterwards."""
        self._do(self._passable.clear)
        yield
        self._do(self._passable.set)

    def half_open(self) -> None:
        """Let nothing pass the connections that there are, ever again; nobody is told."""

        def change() -> None:
            for dead in self._connections.values():
                dead.set()

        self._do(change)

    def lead_to(self, port: int, *, cut: bool = True) -> None:
        """Lead new connections to another server, and cut those that there are."""

        def change() -> None:
            self._server_port = port
            for connection in self._connections if cut else ():
                connection.cancel()

        self._do(change)

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
        self._do(self._stop.set)
        self._thread.join()

    def _do(self, change: Callable[[], object]) -> None:
        """Change something in the link's thread, and wait until it is done."""
        done = threading.Event()

        def call() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(PATIENCE)

    # In the link's own thread

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._passable, self._stop = asyncio.Event(), asyncio.Event()
        self._passable.set()
        async with await asyncio.start_server(self._accept, HOST, 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._up.set()
            await self._stop.wait()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dead = asyncio.Event()
        connection = asyncio.create_task(self._connect(reader, writer, dead))
        self._connections[connection] = dead
        connection.add_done_callback(self._connections.pop)

    async def _connect(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter, dead: asyncio.Event
    ) -> None:
        try:
            await self._passable.wait()
            # Where nobody is, the client learns it by a reset.
            with suppress(OSError):
                server, to_server = await asyncio.open_connection(HOST, self._server_port)
                await self._pump_both(client, to_client, server, to_server, dead)
        finally:
            to_client.transport.abort()

    async def _pump_both(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        dead: asyncio.Event,
    ) -> None:
        pumps = [
            asyncio.create_task(self._pump(client, to_server, dead)),
            asyncio.create_task(self._pump(server, to_client, dead)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # What one side sent last is through; the other learns of the end by a reset.
            for pump in pumps:
                pump.cancel()
            to_server.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, dead: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while True:
                data = await source.read(65536)
                await self._passable.wait()
                if dead.is_set():
                    await asyncio.Event().wait()
                if not data:
                    return
                for piece in await self._pieces(data):
                    sink.write(piece)
                    await sink.drain()
                    await asyncio.sleep(0)

    async def _pieces(self, data: bytes) -> list[bytes]:
        if self._delay is None:
            return [data]
        await asyncio.sleep(self._chance.uniform(*self._delay))
        return [data[at : at + SLICE] for at in range(0, len(data), SLICE)]
