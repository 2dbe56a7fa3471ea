"""Two functions for each task, of which one runs: it writes down which, and for which signal."""

import asyncio

from expirebridge import Limit, current_task, handler
from tests.kit.history import Ran

from ._recording import WRITER, Planned

BOTH = Limit(5, name="decided")
"""Tasks wait for a slot while they can still be signalled."""


async def _run(seconds: float, raises: int, life: int) -> None:
    task = current_task()
    said = task.signal.payload if task.signal is not None else None
    WRITER.write(Ran(id=task.id, life=life, func=task.func, said=said))
    await asyncio.sleep(seconds)
    if task.attempt <= raises:
        raise Planned(f"attempt {task.attempt} of {task.id} was to raise")


async def cancel(seconds: float, raises: int, life: int) -> None:
    """Run at the deadline."""
    await _run(seconds, raises, life)


async def ship(seconds: float, raises: int, life: int) -> None:
    """Run instead, for a signal."""
    await _run(seconds, raises, life)


async def cancel_held(seconds: float, raises: int, life: int) -> None:
    """Run at the deadline; on hold now and then."""
    await _run(seconds, raises, life)


@handler(limit=BOTH)
async def cancel_limited(seconds: float, raises: int, life: int) -> None:
    """Run at the deadline, with a slot."""
    await _run(seconds, raises, life)


@handler(limit=BOTH)
async def ship_limited(seconds: float, raises: int, life: int) -> None:
    """Run instead, for a signal, with a slot of the same limit."""
    await _run(seconds, raises, life)
