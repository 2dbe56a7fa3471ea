"""The lifespan of an ASGI application: its bridge, and the listener that runs what is due."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from expirebridge import AsyncBridge, Listener, ListenerStuck, log_event

logging.basicConfig(level=logging.INFO)  # shows the lines of the listener and of handlers


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Open `app.state.bridge`, and run a listener beside the requests."""
    async with AsyncBridge() as bridge:
        app.state.bridge = bridge
        if os.environ.get("LISTEN") == "no":  # tests, and processes that only serve requests
            yield
            return
        async with Listener(hooks=[log_event]) as listener:  # runs the functions in tasks/
            watch = asyncio.create_task(_stop_with(listener))
            yield
            watch.cancel()


async def _stop_with(listener: Listener) -> None:
    try:
        await listener.wait()
    except ListenerStuck:  # a handler never returns: only a new process frees its place
        os.kill(os.getpid(), signal.SIGTERM)
