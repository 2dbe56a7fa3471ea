"""Handlers that do what the task says, and whose runs are written into the history."""

import asyncio
import time

from expirebridge import Then
from tests.kit.processes import report

from ._recording import Planned, recorded


async def work(seconds: float, raises: int) -> None:
    """Take so long, and raise on the first `raises` attempts."""
    with recorded() as task:
        await asyncio.sleep(seconds)
        if task.attempt <= raises:
            raise Planned(f"attempt {task.attempt} of {task.id} was to raise")


async def charge(seconds: float, raises: int) -> Then:
    """The same, and have a follow-up."""
    await work(seconds, raises)
    return Then("recorded.work", [seconds, 0], tags=["follow-up"])


def labour(seconds: float, raises: int) -> None:
    """The same as a plain function, in a thread."""
    with recorded() as task:
        time.sleep(seconds)
        if task.attempt <= raises:
            raise Planned(f"attempt {task.attempt} of {task.id} was to raise")


async def bait(seconds: float) -> None:
    """Tell the test that this process runs a handler, and take so long; the first listener only."""
    with recorded() as task:
        if not task.lapses:
            report("running")
            await asyncio.sleep(seconds)


def toil(seconds: float) -> None:
    """Tell the test that a thread of this process runs a handler, and take so long."""
    with recorded():
        report("running")
        time.sleep(seconds)


async def falter(seconds: float) -> None:
    """Tell the test, and raise soon; but take so long if a listener has lost the task before."""
    with recorded() as task:
        report("running")
        await asyncio.sleep(seconds if task.lapses else seconds / 4)
        if not task.lapses:
            raise Planned(f"{task.id} was to raise")
