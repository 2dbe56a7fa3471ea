"""Writes the runs of handlers into the history: first statement and last."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from expirebridge import Task, current_task
from expirebridge.task.task import to_ms
from tests.kit.history import Ended, Started, Writer

WRITER = Writer(Path(os.environ["HISTORY"]))


class Planned(Exception):
    """What a handler raises because the test wants it to."""


@contextmanager
def recorded() -> Iterator[Task]:
    """Around all that a handler does."""
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
    else:
        WRITER.write(Ended(id=task.id, run=run, how="returned"))
