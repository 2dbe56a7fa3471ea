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


class LimitOperations(HoldingOperations):
    """Look at limits, let the next tasks of an ordered one go on, weigh tenants, and hold."""

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
            raise InvalidTask(
                f"limit={limit!r}: no handler of a listener has a limit of that name; "
                "`expirebridge limits` lists those that there are"
            )
        if found is limits.calls.SetWeight.UNFAIR:
            raise InvalidTask(f"limit={limit!r}: it is not fair: give it Limit(..., fair=...)")


class LimitMethods(Methods):
    """Look at limits and steer what waits for them, and wait for the server."""

    limits = waits(LimitOperations.limits)
    let_pass = waits(LimitOperations.let_pass)
    weight = waits(LimitOperations.weight)
    hold = waits(LimitOperations.hold)
    release = waits(LimitOperations.release)
    holds = waits(LimitOperations.holds)


class AsyncLimitMethods(AsyncMethods):
    """The same, awaited."""

    limits = awaits(LimitOperations.limits)
    let_pass = awaits(LimitOperations.let_pass)
    weight = awaits(LimitOperations.weight)
    hold = awaits(LimitOperations.hold)
    release = awaits(LimitOperations.release)
    holds = awaits(LimitOperations.holds)
