"""The sweeper: takes back what dead listeners held, and forgets what is over."""

import asyncio

from expirebridge.errors import ServerError
from expirebridge.hooks import Hooks, Lapsed
from expirebridge.listener.session import Footing
from expirebridge.listener.wakeups import Doorbell
from expirebridge.settings import Settings
from expirebridge.store import commands

ROLE = "the sweep"
EVERY = 1.0
"""Seconds between passes while something is overdue, or the server is away."""
A_MOMENT = 0.01
"""Seconds after the end of a lease at which it is looked at."""


class Sweeper:
    """Makes a pass when a lease may be over.

    A pass takes back the tasks of dead listeners, looks again at paused ones and forgets old ones.
    """

    def __init__(
        self, footing: Footing, settings: Settings, *, doorbell: Doorbell, hooks: Hooks
    ) -> None:
        self._footing = footing
        self._settings = settings
        self._doorbell = doorbell
        self._hooks = hooks

    async def run(self) -> None:
        """Make passes for ever: one whenever a lease may be over, at least two in each lease."""
        while True:
            pause = EVERY
            outage = self._footing.now.outage
            try:
                sweep = await self.run_once()
            except ServerError as error:
                outage.failed(ROLE, error)
            else:
                outage.answered(ROLE)
                pause = self._pause_after(sweep)
            await asyncio.sleep(pause)

    async def run_once(self) -> commands.Sweep:
        """Make one pass. Raises a ServerError."""
        sweep = await self._footing.now.store.run(commands.sweep(self._settings))
        for id in sweep.lapsed:
            self._hooks.emit(Lapsed(id=id, failed=False))
        for id in sweep.failed:
            self._hooks.emit(Lapsed(id=id, failed=True))
        if sweep.lapsed:
            self._doorbell.ring()
        return sweep

    def _pause_after(self, sweep: commands.Sweep) -> float:
        """How long nothing can be missed: what is claimed from now on has a whole lease."""
        if sweep.more:
            return 0.0
        longest = self._settings.lease / 2
        if sweep.lapse_in is None:
            return longest
        # A lease that is over already waits for somebody to beat.
        return min(sweep.lapse_in + A_MOMENT if sweep.lapse_in > 0 else EVERY, longest)
