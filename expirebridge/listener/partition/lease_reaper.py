"""The lease reaper: sweeps a partition for lapsed leases and old records."""

from collections.abc import Sequence

from expirebridge.hooks import Hooks, Lapsed
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.partition.capability_roles import PartitionRoles
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.session import SessionOwner
from expirebridge.settings import Settings
from expirebridge.task.calls import reconciling

EVERY = 1.0
"""Seconds between passes while something is overdue, or the server is away."""
A_MOMENT = 0.01
"""Seconds after the end of a lease at which it is looked at."""


class LeaseReaper(PeriodicRole):
    """Takes back tasks whose leases have lapsed, and deletes old records.

    A pass takes back the tasks of dead listeners, looks again at paused ones, and forgets old ones.
    There are at least two passes in each lease.
    """

    role = "the sweep"
    retry_pause = EVERY

    def __init__(
        self, consumer: SessionOwner, settings: Settings, capabilities: Sequence[PartitionRoles], *,
        wakeup: Wakeup, hooks: Hooks,
    ) -> None:  # fmt: skip
        super().__init__(consumer)
        self._settings = settings
        self._capabilities = capabilities
        self._wakeup = wakeup
        self._hooks = hooks

    async def run_once(self) -> float:
        """Make one pass; returns the seconds to pause. Raises a ServerError."""
        sweep = await self._owner.session.store.run(reconciling.sweep(self._settings))
        for id in sweep.lapsed:
            self._hooks.emit(Lapsed(id=id, failed=False))
        for id in sweep.failed:
            self._hooks.emit(Lapsed(id=id, failed=True))
        if sweep.lapsed:
            self._wakeup.set()
        for each in self._capabilities:
            await each.after_sweep(sweep)
        return self._pause_after(sweep)

    def _pause_after(self, sweep: reconciling.Sweep) -> float:
        """How long nothing can be missed: what is claimed from now on has a whole lease."""
        if sweep.more or sweep.stopping:
            return 0.0
        longest = self._settings.lease / 2
        if sweep.lapse_in is None:
            return longest
        # A lease that is over already waits for a heartbeat of any listener.
        return min(sweep.lapse_in + A_MOMENT if sweep.lapse_in > 0 else EVERY, longest)
