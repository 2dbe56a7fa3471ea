"""Handlers may be async: they run side by side on the listener's event loop."""

import asyncio

from tasks._journal import note


async def send(user: int, subject: str) -> str:
    """Pretend to send a mail."""
    note()
    await asyncio.sleep(0.01)
    return f"sent {subject!r} to user {user}"
