"""A canary: a task that runs every ten seconds. If it falls silent, tasks do not run."""

from collections.abc import AsyncGenerator

from expirebridge import AsyncBridge, lifespan

EVERY = 10.0
ID = "canary"


class Home:
    """Where it makes its task: open while the listener is."""

    bridge: AsyncBridge


@lifespan
async def open_bridge() -> AsyncGenerator[None, None]:
    """See that there is a canary, around the listener's whole work."""
    async with AsyncBridge() as Home.bridge:
        # However many listeners start, and however often, there is one canary.
        await Home.bridge.make_task("canary.sing", [], 0, id=ID, if_exists="keep")
        yield


async def sing() -> None:
    """Run once more in ten seconds: this task is re-armed while it runs."""
    # This is the last step. Whatever else is to be looked at comes before it, where a failure is
    # retried, and the canary falls silent meanwhile. Afterwards a failure would be dropped.
    await Home.bridge.reschedule(ID, EVERY)
