"""A keepalive: each sign of life puts the task off with a plain EXPIRE on its key."""

from tasks._journal import note


async def offline(device: str) -> str:
    """Mark a device as offline: nobody put the task off any more."""
    note()
    return f"{device} is offline"
