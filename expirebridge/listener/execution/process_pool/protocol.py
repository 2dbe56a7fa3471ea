"""The protocol between a listener and a process that calls handlers for it.

A frame is one of the values below, pickled, after its length in four bytes. They travel over a
socket pair that no other process has. The listener sends Setup, and then a CallFrame after each
Reply. The process sends Ready or NotReady, then for each CallFrame one Begun, if it calls the
handler, and one Reply, and Logged at any time.
"""

import pickle
import struct
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from expirebridge.errors import InvalidTask
from expirebridge.listener.execution.exceptions import RemoteTraceback
from expirebridge.listener.execution.outcome import shown_error
from expirebridge.settings import Settings
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.durations import seconds_of
from expirebridge.task.policies import Busy, Discard, Retry, Snooze
from expirebridge.task.task import Task

_LENGTH = struct.Struct("!I")
LENGTH_SIZE = _LENGTH.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings with which a process loads the handlers, and its log levels."""

    settings: Settings
    levels: Mapping[str, int]
    """The level of each logger that has one of its own; the root's name is empty."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The handlers are loaded, and the lifespans have begun."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """The process could not start, for this reason, and ends."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFrame:
    """A handler to be called."""

    name: str
    task: Task
    lease_end: float
    """Latest start, by the monotonic clock, which processes share: from then on the task may be in
    another listener."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The handler is being called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An error that a handler raised."""

    pickled: bytes
    """The error; empty if it cannot be pickled."""
    name: str
    """The name of its class."""
    text: str
    """The error's message."""
    shown: str
    """Its traceback, as it is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The end of a call: a result, an error, or the reason why it did not begin."""

    result: bytes = b""
    """The result as JSON, as it is recorded; empty for None."""
    then: NewTask | None = None
    """Instead: the follow-up that the handler returned, checked."""
    raised: Raised | None = None
    not_begun: str = ""
    """The reason if the handler was not called."""
    is_missing: bool = False
    """True if the process has no such handler: the code changed after the listener started."""
    misfit: str = ""
    """The reason if the arguments do not fit the handler of this process."""
    took: float = 0.0
    """Seconds that the handler took."""
    lacked_memory: bool = False
    """True if it raised MemoryError: the process may be short of memory from now on."""
    spent: Mapping[str, int] = field(default_factory=dict)
    """What the handler spent of its budgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A log record."""

    record: Mapping[str, Any]
    """The attributes of the record."""
    is_of_task: bool
    """True if the handler that is called logged it."""


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
    """A decoder: yields frames from data that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._arrived = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Add data, and yield each frame that is complete."""
        arrived = self._arrived
        arrived += data
        while len(arrived) >= LENGTH_SIZE:
            end = LENGTH_SIZE + length_of(arrived[:LENGTH_SIZE])
            if len(arrived) < end:
                return
            frame = pickle.loads(arrived[LENGTH_SIZE:end])  # noqa: S301 - from a process of ours
            del arrived[:end]
            yield frame


# Errors of handlers, encoded for the listener.


def pack(error: BaseException) -> Raised:
    """Encode an error for the listener. Raises nothing, whatever the error is."""
    try:
        return _pack(error)
    except BaseException as another:  # to format an error may raise, too
        return _pack(
            Discard(f"its error cannot be printed: to format it raised {type(another).__name__}")
        )


def unpack(raised: Raised) -> BaseException:
    """The error, or one with its name and message if it cannot be unpickled here."""
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
        # The frames hold memory that is needed to describe it.
        traceback.clear_frames(error.__traceback__)
    plain = _plain(error)
    return Raised(
        pickled=_pickled(plain),
        name=type(plain).__name__,
        text=str(plain),
        shown=shown_error(plain),
    )


def _plain(error: BaseException) -> BaseException:
    """The error; one of a subclass of ours, which may not pickle, becomes its base."""
    try:
        match error:
            case Retry():
                return Retry(seconds_of(error.after, name="after"), str(error))
            case Snooze(after=after, times=times, until=until, charge=charge):
                delay = seconds_of(after, name="after")
                return Snooze(delay, str(error), times=times, until=until, charge=charge)
            case Busy(after=after, per=per, name=name):
                return Busy(seconds_of(after, name="after"), str(error), per=per, name=name)
            case Discard():
                return Discard(str(error))
    except InvalidTask as wrong:  # a subclass need not have called their own __init__
        return Discard(f"its {type(error).__name__} says no delay: {wrong}")
    return error


def _pickled(error: BaseException) -> bytes:
    try:
        pickled = pickle.dumps(error)
        # Many errors with arguments of their own can be pickled, but not unpickled.
        pickle.loads(pickled)  # noqa: S301 - made in the line above
    except Exception:
        return b""
    return pickled
