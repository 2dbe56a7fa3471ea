"""Handlers with limits, whose runs are written into the history."""

import asyncio

from expirebridge import Budget, Limit, Rate, handler

from ._recording import Planned, recorded


@handler(limit=Limit(5, per="customer"))
async def serve(seconds: float, customer: int) -> None:
    """Take so long."""
    with recorded():
        await asyncio.sleep(seconds)


@handler(limit=Limit(5, fair="tenant"))
async def share(seconds: float, tenant: str) -> None:
    """Take so long."""
    with recorded():
        await asyncio.sleep(seconds)


@handler(rate=Rate(60, "1m", burst=5))
async def send(seconds: float) -> None:
    """Take so long."""
    with recorded():
        await asyncio.sleep(seconds)


TOKENS = Budget(3000, "5s", of="tokens", per="key", name="tokens", burst=600)
MODEL = Limit(4, name="model")


@handler(
    rate=[
        TOKENS,
        Rate(20, "5s", per="key", name="asked", burst=3),
        Rate(15, "5s", per="user", name="user", burst=2),
    ],
    limit=MODEL,
)
async def ask(seconds: float, tokens: int, *, key: str, user: str) -> None:
    """Take so long."""
    with recorded():
        await asyncio.sleep(seconds)


@handler(rate=TOKENS, limit=MODEL)
async def count(seconds: float, tokens: int, *, key: str) -> None:
    """Take so long."""
    with recorded():
        await asyncio.sleep(seconds)


@handler(limit=Limit(1, per="entity", ordered=True))
async def step(seconds: float, raises: int, *, entity: int) -> None:
    """Take so long, and raise on the first `raises` attempts."""
    with recorded() as task:
        await asyncio.sleep(seconds)
        if task.attempt <= raises:
            raise Planned(f"attempt {task.attempt} of {task.id} was to raise")
