"""A network between clients and a server that can be cut, held, slowed down and led elsewhere.

It knows nothing of what passes; `tests/kit/proxy.py` is for faults at a certain reply.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from expirebridge.embedded.server import HOST
from tests.kit.forwarder import Forwarder, until_either_ends
from tests.kit.patience import PATIENCE

SLICE = 700
"""Bytes that a slow link carries at a time."""


class Link(Forwarder):
    """Carries everything, until a fault is set.

    With `delay`, a range in seconds, each piece takes so long, and is cut into slices.
    """

    def __init__(self, port: int, *, delay: tuple[float, float] | None = None) -> None:
        super().__init__(port)
        self._delay = delay
        self._chance = random.Random(port)  # noqa: S311 - for a test
        self._passable = asyncio.Event()
        self._passable.set()
        self._dead = asyncio.Event()
        """Set when nothing shall pass the connections that hold it; newer ones hold another."""

    @contextmanager
    def partitioned(self) -> Iterator[None]:
        """Let nothing pass while the block runs; what was sent then arrives afterwards."""
        self._do(self._passable.clear)
        try:
            yield
        finally:
            self._do(self._passable.set)

    def half_open(self) -> None:
        """Let nothing pass the connections that there are, ever again; neither side notices."""

        def change() -> None:
            self._dead.set()
            self._dead = asyncio.Event()

        self._do(change)

    def lead_to(self, port: int, *, cut: bool = True) -> None:
        """Lead new connections to another server, and cut those that there are."""

        def change() -> None:
            self._server_port = port
            for connection in self._connections if cut else ():
                connection.cancel()

        self._do(change)

    def _do(self, change: Callable[[], object]) -> None:
        """Change something in the link's thread, and wait until it is done."""
        done = threading.Event()

        def call() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(PATIENCE)

    # In the link's own thread

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        dead = self._dead
        try:
            await self._passable.wait()
            # Where nobody is, the client learns it by a reset.
            with suppress(OSError):
                server, to_server = await asyncio.open_connection(HOST, self._server_port)
                try:
                    await until_either_ends(
                        self._pump(client, to_server, dead), self._pump(server, to_client, dead)
                    )
                finally:
                    # What one side sent last is through; the other learns of the end by a reset.
                    to_server.transport.abort()
        finally:
            to_client.transport.abort()

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
