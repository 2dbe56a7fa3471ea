"""What a handler raised in a process, on its way to the listener."""

import pickle
import traceback

from expirebridge.errors import InvalidTask
from expirebridge.listener.execution.process_pool.protocol import Raised
from expirebridge.listener.execution.shown import ShownElsewhere, shown_error
from expirebridge.model.durations import seconds_of
from expirebridge.model.policies import Discard, Retry, Snooze


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
    error.__cause__ = ShownElsewhere(raised.shown)
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
