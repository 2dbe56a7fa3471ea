"""A TCP proxy in front of a real server, which cuts connections where a test wants it.

It sees every request and every reply whole. They are framed here because forwarding needs their
bytes: redis-py's parser is private to it and gives only values, and hiredis, once it is installed,
would also be what the client under test reads with.
"""

import asyncio
import hashlib
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from expirebridge.embedded.server import HOST
from expirebridge.store import script_loader
from tests.kit.forwarder import Forwarder, until_either_ends
from tests.kit.lua import NAMES
from tests.kit.patience import PATIENCE

_Asked = deque[tuple[str | None, bytes]]
"""For each reply that is to come on a connection, the script that will have run, if one will, and
its request."""

_SCRIPTS = {
    source.sha.encode(): script.name
    for script in map(script_loader.load, NAMES)
    for source in (script.headed, script.plain)
}

_NOT_RUN = (b"-NOSCRIPT", b"-ERR Error compiling script")
"""Replies of a server that does not know the script yet, or, as Redis 6.2, no headed script."""


@dataclass(slots=True)
class _Cut:
    """Replies of one script that shall not arrive."""

    script: str
    times: int
    holding: bytes
    asking: bytes
    then: Callable[[], object] | None

    def concerns(self, script: str | None, request: bytes, reply: bytes) -> bool:
        if not self.holding and reply.startswith(_NOT_RUN):
            return False
        held = self.holding in reply and self.asking in request
        return self.times > 0 and self.script == script and held


class Proxy(Forwarder):
    """Cuts connections where a test wants it.

    `cuts` and `answered` count, by script, the replies that were swallowed and those that went
    through.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.cuts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._to_cut: list[_Cut] = []
        self._counted = threading.Condition()

    def cut_reply_of(
        self,
        script: str,
        times: int = 1,
        *,
        holding: bytes = b"",
        asking: bytes = b"",
        then: Callable[[], object] | None = None,
    ) -> None:
        """Cut the connection instead of forwarding the next `times` replies to this script.

        The server has done its part by then. With `holding`, only replies that hold these bytes
        count; with `asking`, only replies to requests that hold these. `then` is called after a
        reply was swallowed and before the client can notice: what it does on the server lies
        between the call and its resend.
        """
        assert script in NAMES
        self._to_cut.append(_Cut(script, times, holding, asking, then))

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds` is true after some reply was counted."""
        with self._counted:
            assert self._counted.wait_for(holds, PATIENCE), "the reply never came"

    # In the proxy's own thread

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(HOST, self._server_port)
        asked: _Asked = deque()
        try:
            await until_either_ends(
                self._forward_requests(client, to_server, asked),
                self._forward_replies(server, to_client, asked),
            )
        finally:
            to_server.close()
            to_client.close()

    async def _forward_requests(
        self,
        client: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        asked: _Asked,
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                pieces = await _read_message(client)
                request = b"".join(pieces)
                asked.append((_script_in(pieces), request))
                to_server.write(request)
                await to_server.drain()

    async def _forward_replies(
        self,
        server: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        asked: _Asked,
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                reply = b"".join(await _read_message(server))
                # A subscribed connection gets what nobody asked for. It carries no scripts, so it
                # does not matter there which request is taken for which reply's.
                script, request = asked.popleft() if asked else (None, b"")
                if self._cuts(script, request, reply):
                    return
                to_client.write(reply)
                await to_client.drain()
                if script and not reply.startswith(_NOT_RUN):
                    self._count(self.answered, script)

    def _cuts(self, script: str | None, request: bytes, reply: bytes) -> bool:
        for cut in self._to_cut:
            if cut.concerns(script, request, reply):
                cut.times -= 1
                if cut.then:
                    cut.then()
                self._count(self.cuts, cut.script)
                return True
        return False

    def _count(self, counter: Counter[str], script: str) -> None:
        with self._counted:
            counter[script] += 1
            self._counted.notify_all()


async def _read_message(stream: asyncio.StreamReader) -> list[bytes]:
    """One whole message, in the pieces of which RESP2 makes it: lines, and bodies of strings."""
    line = await stream.readuntil(b"\r\n")
    kind, size = line[:1], line[1:-2]
    if kind == b"$" and size != b"-1":
        return [line, await stream.readexactly(int(size) + 2)]
    pieces = [line]
    if kind == b"*":
        for _ in range(int(size)):
            pieces += await _read_message(stream)
    return pieces


def _script_in(pieces: list[bytes]) -> str | None:
    """The script that a request runs, if it does: a request is an array of strings."""
    command, *arguments = [piece[:-2] for piece in pieces[2::2]]
    match command.upper():
        case b"EVALSHA":
            return _SCRIPTS.get(arguments[0])
        case b"EVAL":
            return _SCRIPTS.get(hashlib.sha1(arguments[0]).hexdigest().encode())  # noqa: S324
    return None
