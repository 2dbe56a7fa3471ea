"""How long a handler may run."""

from expirebridge.errors import InvalidTask
from expirebridge.model.durations import Duration, seconds_of


def check_timeout(timeout: Duration | None) -> float | None:
    """Return a timeout in seconds; raise InvalidTask unless it is above 0."""
    if timeout is None:
        return None
    seconds = seconds_of(timeout, name="timeout")
    if seconds <= 0:
        raise InvalidTask(f"timeout={timeout!r}: it must be above 0")
    return seconds
