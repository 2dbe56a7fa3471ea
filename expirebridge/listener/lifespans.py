"""Lifespans: resources of handlers, opened before the first task and closed after the last."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from expirebridge.errors import HandlersError
from expirebridge.hooks import Lifespan


@contextlib.asynccontextmanager
async def entered(lifespans: Sequence[Lifespan]) -> AsyncIterator[None]:
    """Begin each lifespan, and end them in the opposite order.

    Raises HandlersError if one of them raises.
    """
    async with contextlib.AsyncExitStack() as stack:
        for lifespan in lifespans:
            await stack.enter_async_context(_named(lifespan))
        yield


@contextlib.asynccontextmanager
async def _named(lifespan: Lifespan) -> AsyncIterator[None]:
    """One lifespan; what it raises is raised with its name."""
    name = f"{lifespan.__module__}.{getattr(lifespan, '__name__', lifespan)}"
    generator = lifespan()
    try:
        await anext(generator)
    except Exception as error:
        raise HandlersError(f"the lifespan {name} failed at the start: {error!r}") from error
    try:
        yield
    finally:
        try:
            await anext(generator, None)
        except Exception as error:
            raise HandlersError(f"the lifespan {name} failed at the end: {error!r}") from error
        finally:
            await generator.aclose()
