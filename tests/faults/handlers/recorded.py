"""Handlers whose runs are written into the history: first statement and last."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from expirebridge import Task, current_task
from expirebridge.task import to_ms
from tests.history import Ended, Started, Writer
from tests.processes import report

WRITER = Writer(Path(os.environ["HISTORY"]))


class Planned(Exception):
    """What a handler raises because the test wants it to."""


@contextmanager
def _recorded() -> Iterator[Task]:
    task, run = current_task(), uuid4().hex
    told = {"attempt": task.attempt, "lapses": task.lapses, "due": to_ms(task.due)}
    WRITER.write(Started(id=task.id, run=run, **told))
    try:
        yield task
    except asyncio.CancelledError:
        WRITER.write(Ended(id=task.id, run=run, how="cancelled"))
        raise
    except BaseException as error:
        WRITER.write(Ended(id=task.id, run=run, how="raised", error=str(error)))
        raise
    WRITER.write(Ended(id=task.id, run=run, how="returned"))


async def work(seconds: float, raises: int) -> None:
    """Take so long, and raise on the first `raises` attempts."""
    with _recorded() as task:
        await asyncio.sleep(seconds)
        if task.attempt <= raises:
            raise Planned(f"attempt {task.attempt} of {task.id} was to raise")


async def bait(seconds: float) -> None:
    """Tell the test that this process runs a handler, and take so long."""
    with _recorded():
        report("running")
        await asyncio.sleep(seconds)


async def falter(seconds: float) -> None:
    """Tell the test, and raise soon; but take so long if a listener has lost the task before."""
    with _recorded() as task:
        report("running")
        await asyncio.sleep(seconds if task.lapses else seconds / 4)
        if not task.lapses:
            raise Planned(f"{task.id} was to raise")
