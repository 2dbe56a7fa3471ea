"""Waiting for attempts to be settled, in a task that was cancelled."""

import asyncio

from expirebridge.listener.execution.in_flight import InFlight


async def test_a_wait_after_a_cancellation_ends_in_time() -> None:
    """Python 3.11.2 took a limit that was reached for another cancellation."""
    waits, over = asyncio.Event(), asyncio.Event()

    async def clean_up() -> None:
        try:
            waits.set()
            await asyncio.Event().wait()
        finally:
            await InFlight().wait_until(lambda: False, 0.01)
            over.set()

    task = asyncio.create_task(clean_up())
    await waits.wait()
    task.cancel()
    await asyncio.wait([task])
    assert over.is_set()
