"""The process boundary of a design that keeps tasks in memory: they are made over TCP, as in Redis.

The worker calls `serve`. The producer's side is `schedule`, `schedule_many` and `keep`, which a
contender imports as its own. A request is a line of JSON, [verb, arguments], and the answer a line.
The worker's port is in the file `port` of the folder in which both run.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from io import BufferedRWPair
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
PORT = Path("port")
PATIENCE = 30.0
LONGEST_LINE = 2**24

# The worker's side.

_running: set[asyncio.Task[None]] = set()


def fire(handler: Coroutine[Any, Any, None]) -> None:
    """Run a handler beside everything else."""
    task = asyncio.ensure_future(handler)
    _running.add(task)
    task.add_done_callback(_running.discard)


async def serve(**verbs: Callable[..., None]) -> asyncio.Server:
    """Do what producers ask for: `make` a list of (number, due), `keep` numbers for seconds."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            verb, arguments = json.loads(line)
            verbs[verb](*arguments)
            writer.write(b"ok\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0, limit=LONGEST_LINE)
    _publish(server.sockets[0].getsockname()[1])
    return server


def _publish(port: int) -> None:
    beside = PORT.with_name(f"port-{os.getpid()}")
    beside.write_text(str(port))
    beside.replace(PORT)


async def tick(seconds: float, advance: Callable[[int], None], after: int) -> None:
    """Call `advance` with the number of each tick after `after`: tick n is at n * `seconds`.

    Ticks that were missed, as under load, follow at once.
    """
    while True:
        after += 1
        await sleep_until(after * seconds)
        advance(after)
        await asyncio.sleep(0)  # requests are answered between ticks that were missed


async def sleep_until(when: float) -> None:
    """Wake up at `when`, in seconds since 1970, and never earlier."""
    while (left := when - time.time()) > 0:  # noqa: ASYNC110 - asyncio's clock is another one
        await asyncio.sleep(left)


# The producer's side.


def schedule(number: int, due: float) -> None:
    """Have one task made. The first call waits for the worker."""
    _call("make", [[(number, due)]])


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    """Have several tasks made."""
    _call("make", [tasks])


def keep(numbers: Sequence[int], seconds: float) -> None:
    """Have tasks put off, to `seconds` from now."""
    _call("keep", [numbers, seconds])


def _call(verb: str, arguments: Sequence[object]) -> None:
    line = json.dumps([verb, arguments]).encode() + b"\n"
    for _ in range(2):  # the worker may have been restarted
        try:
            _link().write(line)
            _link().flush()
            if _link().readline() == b"ok\n":
                return
        except OSError:
            pass
        _link.cache_clear()
    raise ConnectionError(f"the worker did not do this: {line[:80]!r}")


@cache
def _link() -> BufferedRWPair:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            link = socket.create_connection((HOST, int(PORT.read_text())))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link.makefile("rwb")
