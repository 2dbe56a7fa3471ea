"""The frames between a listener and a process that calls handlers for it.

Each is one of the values below, pickled, after its length in four bytes. A pair of sockets carries
them that nobody else has. The listener sends Setup, and then a Call after each Reply. The process
sends Ready or NotReady, then for each Call one Begun, if it calls the handler, and one Reply, and
Logged at any time.
"""

import pickle
import struct
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from expirebridge.errors import InvalidTask
from expirebridge.listener.execution.exceptions import RemoteTraceback
from expirebridge.listener.execution.outcome import shown_error
from expirebridge.model.durations import seconds_of
from expirebridge.model.policies import Discard, Retry, Snooze
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
class CallFrame:
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


def encode(frame: Setup | CallFrame | FromProcess) -> bytes:
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


# What a handler raised in a process, on its way to the listener.


def pack(error: BaseException) -> Raised:
    """Describe an error for the listener. Raises nothing, whatever the error is like."""
    try:
        return _pack(error)
    except BaseException as another:  # to format an error may raise, too
        return _pack(
            Discard(f"its error cannot be printed: to format it raised {type(another).__name__}")
        )


def unpack(raised: Raised) -> BaseException:
    """The error again, or one with its name and text if it cannot be had here."""
    error = _unpickled(raised.pickled) or type(raised.name, (Exception,), {})(raised.text)
    error.__cause__ = RemoteTraceback(raised.shown)
    return error


def _unpickled(pickled: bytes) -> BaseException | None:
    try:
        error = pickle.loads(pickled)  # noqa: S301 - from a process of ours
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _pack(error: BaseException) -> Raised:
    if isinstance(error, MemoryError):
        # What the handler's frames hold is needed to describe it.
        traceback.clear_frames(error.__traceback__)
    plain = _plain(error)
    return Raised(
        pickled=_pickled(plain),
        name=type(plain).__name__,
        text=str(plain),
        shown=shown_error(plain),
    )


def _plain(error: BaseException) -> BaseException:
    """The error; in place of an answer's subclass, which may not be pickled well, its base."""
    try:
        match error:
            case Retry():
                return Retry(seconds_of(error.after, name="after"), str(error))
            case Snooze(after=after, times=times, until=until):
                return Snooze(seconds_of(after, name="after"), str(error), times=times, until=until)
            case Discard():
                return Discard(str(error))
    except InvalidTask as wrong:  # a subclass need not have called their own __init__
        return Discard(f"its {type(error).__name__} says no delay: {wrong}")
    return error


def _pickled(error: BaseException) -> bytes:
    try:
        pickled = pickle.dumps(error)
        # Many errors with arguments of their own can be pickled, but not made again.
        pickle.loads(pickled)  # noqa: S301 - made in the line above
    except Exception:
        return b""
    return pickled
