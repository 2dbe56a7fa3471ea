"""Lifespans of a process for handlers, beside the handlers."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from expirebridge.hooks import Lifespan
from expirebridge.listener.lifespans import entered


@contextlib.contextmanager
def entered_apart(lifespans: Sequence[Lifespan]) -> Iterator[None]:
    """Begin the lifespans, and end them after the block, on an event loop in a thread of its own.

    So what they leave running there goes on while a handler runs, as in a listener. Raises
    HandlersError if one of them raises.
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def live() -> None:
        async with entered(lifespans):
            over = asyncio.Event()
            begun.set_result((asyncio.get_running_loop(), over))
            await over.wait()

    def run() -> None:
        try:
            asyncio.run(live())
            ended.set_result(None)
        except BaseException as error:
            (ended if begun.done() else begun).set_exception(error)

    threading.Thread(target=run, name="expirebridge-lifespans", daemon=True).start()
    loop, over = begun.result()
    yield
    loop.call_soon_threadsafe(over.set)
    ended.result()
