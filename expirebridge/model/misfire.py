"""What happens to a task that is claimed late, because no listener was there when it was due."""

import random
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.model.durations import Duration, seconds_of


@dataclass(frozen=True)
class Spread:
    """Run a late task at a random time within `over`, so late tasks do not all start at once.

    `over` is seconds, a timedelta, or text such as "10m". Raises InvalidTask unless it is above 0.
    """

    over: Duration

    def __post_init__(self) -> None:
        if seconds_of(self.over, name="over") <= 0:
            raise InvalidTask(f"over={self.over!r}: it must be above 0")


MisfireSpec = Literal["run", "skip"] | Spread


class MisfirePolicy(NamedTuple):
    """The rule for a late task."""

    late_after: float | None
    """How many seconds after its due time a task is late. None: it runs however late it is."""
    window: float | None = None
    """Seconds over which late tasks are spread. None: they are skipped."""

    def delay(self) -> float | None:
        """Seconds until a late task runs; None: it is skipped."""
        if self.window is None:
            return None
        # A delay of 0 would mean the old due time.
        return max(random.uniform(0, self.window), 0.001)  # noqa: S311 - needs no secrecy

    def encode(self) -> bytes:
        """The policy as JSON, for the task's record."""
        if self.late_after is None:
            return b'["run"]'
        if self.window is None:
            return orjson.dumps(["skip", self.late_after])
        return orjson.dumps(["spread", self.late_after, self.window])


def misfire_policy_of(
    late_after: Duration | None, misfire: MisfireSpec | None
) -> MisfirePolicy | None:
    """Turn the arguments `late_after=` and `misfire=` into a policy.

    Returns None if neither was given. Raises InvalidTask.
    """
    late = None if late_after is None else seconds_of(late_after, name="late_after")
    if misfire not in {None, "run", "skip"} and not isinstance(misfire, Spread):
        raise InvalidTask(f"misfire={misfire!r}: give 'run', 'skip' or Spread(over=...)")
    if misfire is None and late is not None:
        raise InvalidTask(
            f"late_after={late_after!r}: add what to do then: misfire='skip' or Spread(over=...)"
        )
    if misfire is None:
        return None
    if misfire == "run":
        if late is not None:
            raise InvalidTask("misfire='run' runs a task however late it is: leave out late_after")
        return MisfirePolicy(None)
    if late is None:
        raise InvalidTask(f"misfire={misfire!r}: add when a task is late, such as late_after='5m'")
    if late <= 0:
        raise InvalidTask(f"late_after={late_after!r}: it must be above 0")
    window = seconds_of(misfire.over, name="over") if isinstance(misfire, Spread) else None
    return MisfirePolicy(late, window)


def decode_misfire(stored: bytes) -> MisfirePolicy:
    """Read a policy back from a task's record. Raises ValueError if it is not one."""
    value: Any = orjson.loads(stored)
    match value:
        case ["run"]:
            return MisfirePolicy(None)
        case ["skip", int() | float() as late]:
            return MisfirePolicy(late)
        case ["spread", int() | float() as late, int() | float() as window] if window > 0:
            return MisfirePolicy(late, window)
    raise ValueError(f"not a misfire policy: {stored!r}")
