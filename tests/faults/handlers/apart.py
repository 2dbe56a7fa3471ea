"""Handlers in processes of their own, whose runs are written into the history."""

import time

from expirebridge import handler
from tests.kit.processes import report

from ._recording import recorded


@handler(process=True)
def labour(seconds: float) -> None:
    """Take so long in a process of its own."""
    with recorded():
        time.sleep(seconds)


@handler(process=True)
def bait(seconds: float) -> None:
    """Tell the test that this process runs a handler, and take so long; the first time only."""
    with recorded() as task:
        if task.attempt == 1 and not task.lapses:
            report("running")
            time.sleep(seconds)
