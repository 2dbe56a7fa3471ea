"""What happened, written down outside Redis: the witness that a server cannot deceive.

Each process appends lines of JSON to a file of its own, and the system has a line before its writer
goes on: it outlives a `kill -9`, and nobody waits for a disk. No more than the last line of a file
can be torn, and the reader leaves that one out; a line that is broken anywhere else is an error.

All processes are on one machine, so all times, the server's too, are of one clock: milliseconds
since 1970, cut off and not rounded.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

import orjson


def now() -> int:
    """The time in ms, by the clock that the server reads too."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A producer's `make_task` or `make_tasks` returned. An id is made once in a history."""

    id: str
    due: int
    attempts: int
    """How many attempts its retry policy allows."""
    timeout: float | None = None
    """The seconds that it was given for each run; None: the default."""
    at: int = field(default_factory=now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancelled:
    """A producer's `cancel` returned, and did not say that it was too late."""

    id: str
    answer: str
    """What it said: cancelled, or running (no further attempt follows)."""
    at: int = field(default_factory=now)


@dataclass(frozen=True, kw_only=True, slots=True)
class PutOff:
    """A producer put a task off, and the server did it: what is claimed later is due at `due`."""

    id: str
    due: int
    running: bool = False
    """Whether it was running, or may have been: it runs once more then."""
    at: int = field(default_factory=now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A handler's first statement. `attempt`, `lapses` and `due` are what its listener was told."""

    id: str
    run: str
    """Tells this run from all others."""
    attempt: int
    lapses: int
    due: int
    pid: int = field(default_factory=os.getpid)
    at: int = field(default_factory=now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """A handler's first statement, of a task for which one of two functions runs."""

    id: str
    life: int
    """Which of the tasks that had this id, one after the other."""
    func: str
    said: int | None
    """What its signal said, if it had one."""
    pid: int = field(default_factory=os.getpid)
    at: int = field(default_factory=now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A handler's last statement; its outcome is not recorded yet. Of one that was killed with its
    process, the test writes it.
    """

    id: str
    run: str
    how: Literal["returned", "raised", "cancelled", "killed"]
    error: str = ""
    """The words of what it raised."""
    at: int = field(default_factory=now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Killed:
    """A process was killed, by the test or a handler of its own: from just before to its end."""

    pid: int
    at: int
    until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GaveUp:
    """A listener had ended by itself, because a handler overran its timeout."""

    pid: int
    at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Stopped:
    """The test held a process still (SIGSTOP): from just before that until it let it go on."""

    pid: int
    at: int
    until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CutOff:
    """The test cut a process off from the server: from just before that until it let it through."""

    pid: int
    at: int
    until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgot:
    """The test made the server forget: what was written from `at` on may be gone, all of it or a
    part. At `until` that was done, and the server had not begun to serve again."""

    at: int
    until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Down:
    """The test had the server down: from just before that until it answered again."""

    at: int
    until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The test had read in a row of the ledger that the task has ended: it never starts again."""

    id: str
    at: int


Event = (
    Made
    | Cancelled
    | PutOff
    | Started
    | Ran
    | Ended
    | Killed
    | GaveUp
    | Stopped
    | CutOff
    | Forgot
    | Down
    | Known
)

KINDS: dict[str, type[Event]] = {kind.__name__.lower(): kind for kind in get_args(Event)}


class Writer:
    """Appends to this process's file in a history's folder.

    The file must be new: of two processes with one pid nobody could tell who was killed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = os.open(folder / f"{os.getpid()}.jsonl", flags, 0o600)

    def write(self, *events: Event) -> None:
        """Write a line for each event. They outlive this process when this returns."""
        lines = b"".join(_encoded(event) for event in events)
        if os.write(self._file, lines) != len(lines):
            raise OSError("the history took only a part of what was written")

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[Event]:
    """Every event of a history, each file's in the order in which it was written.

    Raises ValueError for a line that is no event, unless it is the torn last one of its file.
    """
    return [event for file in sorted(folder.glob("*.jsonl")) for event in _events(file)]


def _encoded(event: Event) -> bytes:
    line = {"event": type(event).__name__.lower(), **asdict(event)}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _events(file: Path) -> Iterator[Event]:
    # A whole line ends in a newline, so what stands behind the last one is torn, or nothing.
    *lines, _torn = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            fields = orjson.loads(line)
            yield KINDS[fields.pop("event")](**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file.name}, line {number}: {error!r} in {line!r}") from error
