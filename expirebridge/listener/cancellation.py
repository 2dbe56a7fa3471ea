"""Cancelling asyncio tasks for good."""

import asyncio
from collections.abc import Sequence


async def cancel_roles(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Cancel tasks until they have ended."""
    waiting = set(tasks)
    while waiting:
        # Once is not always enough: before Python 3.12 asyncio.wait_for, which redis-py uses, loses
        # a cancellation that arrives together with its result.
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=0.1)
