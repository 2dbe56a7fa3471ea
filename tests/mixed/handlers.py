"""Handlers that both versions run; copied into a handlers' folder as `acts`."""

import asyncio
from typing import Any

from expirebridge import current_task


async def take(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """What arrived, as the result."""
    return {"args": [str(arg)[:20] for arg in args], "kwargs": kwargs}


def fail(times: int) -> str:
    """Fail on the first so many attempts."""
    if current_task().attempt <= times:
        raise ValueError(f"attempt {current_task().attempt} fails")
    return "at last"


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)
