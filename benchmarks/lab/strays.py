"""Finds what else works on the machine: a measurement beside it would measure both."""

import time
from typing import Final

import psutil

MOST: Final = 0.1
"""Of a core: a process that takes more than this spoils a measurement."""


def find(seconds: float = 1.0) -> list[str]:
    """The processes that take more than a tenth of a core, but for this one and its children."""
    here = psutil.Process()
    ours = {here.pid, *(child.pid for child in here.children(recursive=True))}
    before = {pid: used for pid, used, _ in _times() if pid not in ours}
    time.sleep(seconds)
    shares = [
        (pid, name, (used - before[pid]) / seconds) for pid, used, name in _times() if pid in before
    ]
    return [f"{name} ({pid}): {share:.0%}" for pid, name, share in shares if share > MOST]


def _times() -> list[tuple[int, float, str]]:
    """Each process: its id, the seconds of processor time it has had, and its name."""
    found = psutil.process_iter(["pid", "cpu_times", "name"])
    return [
        (process.info["pid"], times.user + times.system, process.info["name"])
        for process in found
        if (times := process.info["cpu_times"]) is not None
    ]
