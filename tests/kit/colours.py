"""One test for both colours of a bridge."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from expirebridge import AsyncBridge, Bridge

Ask = Callable[..., Awaitable[Any]]


def asking(bridge: Bridge | AsyncBridge) -> Ask:
    """Call a bridge's method by name, and await it if it wants that."""

    async def ask(name: str, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(bridge, name)(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    return ask


@asynccontextmanager
async def asking_one(bridge: Bridge | AsyncBridge) -> AsyncIterator[Ask]:
    """The same for one block, at whose end the bridge is closed."""
    try:
        yield asking(bridge)
    finally:
        if isinstance(bridge, AsyncBridge):
            await bridge.aclose()
        else:
            bridge.close()
