"""The frames between a listener and a process that calls handlers for it.

Each is one of the values below, pickled, after its length in four bytes. A pair of sockets carries
them that nobody else has. The listener sends Setup, and then a Call after each Reply. The process
sends Ready or NotReady, then for each Call one Begun, if it calls the handler, and one Reply, and
Logged at any time.
"""

import pickle
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from expirebridge.model.task import Task
from expirebridge.settings import Settings

_LENGTH = struct.Struct("!I")
LENGTH_SIZE = _LENGTH.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a process needs to know to load the handlers."""

    settings: Settings
    levels: Mapping[str, int]
    """The level of each logger that has one of its own; the root's name is empty."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The handlers are loaded, and the lifespans have begun."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """The process ends: this was why it could not start."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A handler to be called."""

    name: str
    task: Task
    lease_end: float
    """When it must have begun, by the monotonic clock, which processes share: from then on another
    listener may have the task."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The handler is being called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What a handler raised."""

    pickled: bytes
    """The error; nothing if it cannot be pickled."""
    name: str
    """The name of its class."""
    text: str
    """What the error says."""
    shown: str
    """Its traceback, as it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How the call ended: with a result, or with an error, or it did not begin."""

    result: bytes = b""
    """As JSON, as it is kept; nothing for None."""
    raised: Raised | None = None
    not_begun: str = ""
    """Why the handler was not called, if it was not."""
    is_missing: bool = False
    """Whether the process has no such handler: the code was changed after the listener started."""
    misfit: str = ""
    """Why the arguments do not fit the handler of this process, if they do not."""
    took: float = 0.0
    """Seconds that the handler took."""
    lacked_memory: bool = False
    """Whether it raised MemoryError: the process may be short of memory from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A line of the log."""

    record: Mapping[str, Any]
    """The attributes of the record."""
    is_of_task: bool
    """Whether the handler that is called logged it."""


FromProcess = Ready | NotReady | Begun | Reply | Logged


def encode(frame: Setup | Call | FromProcess) -> bytes:
    """The frame as it is sent."""
    pickled = pickle.dumps(frame)
    return _LENGTH.pack(len(pickled)) + pickled


def length_of(head: bytes | bytearray) -> int:
    """The length of a frame that begins with these four bytes."""
    (length,) = _LENGTH.unpack(head)
    return int(length)


class Frames:
    """Takes frames out of what arrives, in pieces of any size."""

    def __init__(self) -> None:
        self._arrived = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take in what arrived, and give each frame that is complete now."""
        arrived = self._arrived
        arrived += data
        while len(arrived) >= LENGTH_SIZE:
            end = LENGTH_SIZE + length_of(arrived[:LENGTH_SIZE])
            if len(arrived) < end:
                return
            frame = pickle.loads(arrived[LENGTH_SIZE:end])  # noqa: S301 - from a process of ours
            del arrived[:end]
            yield frame
