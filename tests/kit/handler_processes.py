"""Processes for handlers, as a test sees them from outside."""

import os
from pathlib import Path

CHILD = b"expirebridge.listener.execution.process_pool"


def processes_below(pid: int) -> list[int]:
    """The processes for handlers that this one has started, zombies included."""
    return [each for each in _children_of(pid) if CHILD in _command_of(each)]


def zombies_of(pid: int) -> list[int]:
    """The children of this process that have ended, and that it did not take note of."""
    return [each for each in _children_of(pid) if _stat_of(each)[0] == "Z"]


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, not paths


def _children_of(pid: int) -> list[int]:
    """Whichever of its threads has started them."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return sorted(each for each in numbers if _stat_of(each)[1] == str(pid))


def _stat_of(pid: int) -> list[str]:
    """Its state, its parent and so on; empty texts if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["", ""]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
