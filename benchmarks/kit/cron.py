"""What cron does: at each full interval it starts a process, whatever became of the one before.

The process is forked, so it does not cost the start of an interpreter.
"""

import contextlib
import os
import time
import traceback
from collections.abc import Callable

INTERVAL = float(os.environ.get("LAB_INTERVAL", "1"))
"""Seconds: the setting of a contender that is run by cron. An hour is 3600."""


def next_run(interval: float, now: float) -> float:
    """The first full interval after `now`, in seconds since 1970."""
    return (now // interval + 1) * interval


def run_each(interval: float, job: Callable[[], None]) -> None:
    """Run `job` in a process of its own, at each full interval of so many seconds, for ever."""
    while True:
        at = next_run(interval, time.time())
        while (left := at - time.time()) > 0:
            time.sleep(left)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            _run(job)


def _run(job: Callable[[], None]) -> None:
    try:
        job()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
