"""Operations on limits: look at them, and steer what waits for them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from expirebridge import limits
from expirebridge.errors import InvalidTask
from expirebridge.limits.holding import HoldingOperations
from expirebridge.task import keys
from expirebridge.task.calls.call import LEFT_OUT, Command, Steps
from expirebridge.task.methods import AsyncMethods, Methods, awaits, waits
from expirebridge.task.task import Change

if TYPE_CHECKING:
    from expirebridge.limits.values import LimitListing

MAX_LANES = 1000
"""Most lanes that one call reads, which takes the server some milliseconds."""


MOST_OF_ALL = 1_000_000_000
"""The largest number that any limit can have: that of a budget."""
_NUMBERS = (
    "a whole number, 1 to 1,000,000 (of a budget, to 1,000,000,000), with at most a million starts "
    "a second, and a burst that takes at most 100 years"
)


class LimitOperations(HoldingOperations):
    """Look at limits, change their numbers, let an ordered one go on, weigh tenants, and hold."""

    def limits(self, *, lanes: int = 20) -> Steps["LimitListing"]:
        """Return the limits that listeners declared, and the lanes in which most tasks are.

        At most `lanes` of them, the fullest first: how many tasks have a slot, how many wait, and
        since when the first of these is due. Raises InvalidTask unless `lanes` is from 1 to 1000.
        Partitions that cannot be asked are left out, and named in `left_out`.
        """
        if type(lanes) is not int or not 1 <= lanes <= MAX_LANES:
            raise InvalidTask(f"lanes={lanes!r}: it must be a whole number, 1 to {MAX_LANES:,}")
        found = yield from limits.calls.read_limits(lanes)
        left_out = yield from LEFT_OUT
        return replace(found, left_out=left_out) if left_out else found

    def let_pass(self, id: str) -> Command[Change]:
        """Let the next tasks of an ordered limit go on, past a failed one that keeps its slot.

        Returns passed, unchanged (it has no slot, or has not ended) or not found. Raises
        InvalidTask for an illegal id.
        """
        return limits.calls.let_pass(keys.check_id(id))

    def set_limit(self, limit: str, number: int | None, *, value: object = None) -> Steps[None]:
        """Set the number of a limit instead of the one that its handlers declare.

        Of a `Limit` that is its `most`, of a `Rate` its `starts`, of a `Budget` its `amount`. With
        `value`, a value of its argument `per`, it counts for that lane alone; without, for all
        lanes that have no number of their own. It counts from the next claim on, whatever listeners
        declare later, until None takes it back. Tasks that run go on.

        Raises InvalidTask for a number that is not whole, from 1 to 1,000,000 (of a budget, to
        1,000,000,000), or that the handler could not have declared beside the rest; and if no
        handler of a listener has such a limit, if it has a `value` and no `per`, and for any number
        but 1 if it is ordered.
        """
        if number is not None and (type(number) is not int or not 1 <= number <= MOST_OF_ALL):
            raise InvalidTask(f"number={number!r:.60}: {_NUMBERS}")
        own = None if value is None else limits.values.lane_value(value)
        found = yield from limits.calls.set_limit(str(limit), own, number)
        match found:
            case limits.replies.SetLimit.UNKNOWN:
                raise _unknown(limit)
            case limits.replies.SetLimit.ONE_LANE:
                raise InvalidTask(
                    f"value={value!r:.60}: {limit!r} has one lane for all values: leave out value="
                )
            case limits.replies.SetLimit.ORDERED:
                raise InvalidTask(
                    f"number={number}: tasks of {limit!r} run in order, one at a time; to stop "
                    "them, use hold"
                )
            case limits.replies.SetLimit.IMPOSSIBLE:
                raise InvalidTask(f"number={number}: {limit!r} takes {_NUMBERS}")

    def weight(self, limit: str, tenant: object, weight: float) -> Steps[None]:
        """Give a tenant of a fair limit so many turns for each one of the others.

        `limit` is the limit's name, `tenant` a value of its argument `fair`. It counts from the
        tenant's next turn on; 1 is the usual weight. Raises InvalidTask for a weight that is not
        from 0.001 to 1000, and if no handler of a listener has such a limit, or it is not fair.
        """
        if not isinstance(weight, int | float) or not 0.001 <= weight <= 1000:
            raise InvalidTask(f"weight={weight!r}: it must be a number, 0.001 to 1000")
        found = yield from limits.calls.set_weight(limit, limits.values.lane_value(tenant), weight)
        if found is limits.calls.SetWeight.UNKNOWN:
            raise _unknown(limit)
        if found is limits.calls.SetWeight.UNFAIR:
            raise InvalidTask(f"limit={limit!r}: it is not fair: give it Limit(..., fair=...)")


def _unknown(limit: object) -> InvalidTask:
    return InvalidTask(
        f"limit={limit!r:.200}: no handler of a listener has a limit of that name; "
        "`expirebridge limits` lists those that there are"
    )


class LimitMethods(Methods):
    """Look at limits and steer what waits for them, and wait for the server."""

    limits = waits(LimitOperations.limits)
    let_pass = waits(LimitOperations.let_pass)
    set_limit = waits(LimitOperations.set_limit)
    weight = waits(LimitOperations.weight)
    hold = waits(LimitOperations.hold)
    release = waits(LimitOperations.release)
    holds = waits(LimitOperations.holds)


class AsyncLimitMethods(AsyncMethods):
    """The same, awaited."""

    limits = awaits(LimitOperations.limits)
    let_pass = awaits(LimitOperations.let_pass)
    set_limit = awaits(LimitOperations.set_limit)
    weight = awaits(LimitOperations.weight)
    hold = awaits(LimitOperations.hold)
    release = awaits(LimitOperations.release)
    holds = awaits(LimitOperations.holds)
