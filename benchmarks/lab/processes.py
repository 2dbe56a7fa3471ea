"""What Linux says of processes and all that they started: processor time and memory."""

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)


@dataclass(frozen=True)
class _Status:
    """Of /proc/PID/stat, see proc(5)."""

    parent: int
    seconds: float
    """Of the processor, with those of children that have ended."""

    @classmethod
    def of(cls, pid: int) -> "_Status":
        # The name of the program is in brackets, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(parent=int(fields[1]), seconds=sum(map(int, fields[11:15])) / _TICKS)


def tree(roots: Iterable[int]) -> list[int]:
    """These processes, as far as they live, and their children's children."""
    children: dict[int, list[int]] = defaultdict(list)
    alive = set()
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(*_GONE):
            children[_Status.of(pid).parent].append(pid)
            alive.add(pid)
    found: list[int] = []
    waiting = [pid for pid in roots if pid in alive]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children[pid]
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """Processor time of these processes and all below them, so far."""
    total = 0.0
    for pid in tree(roots):
        with contextlib.suppress(*_GONE):
            total += _Status.of(pid).seconds
    return total


def memory(roots: Iterable[int]) -> int:
    """Bytes of memory of these processes and all below them; what several share counts once."""
    total = 0
    for pid in tree(roots):
        with contextlib.suppress(*_GONE):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def kill(roots: Iterable[int]) -> None:
    """Kill these processes and all below them, as when a machine dies."""
    pids = tree(roots)
    # Stopped first, none can start another while they are killed one by one.
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
