"""The claimer: answers the doorbell by claiming what is due, as far as there is room."""

import asyncio
import logging
import time
from collections.abc import Callable

from expirebridge.errors import ServerError
from expirebridge.hooks import Claimed, Hooks
from expirebridge.listener.clock import Clock
from expirebridge.listener.doorbell import Doorbell
from expirebridge.listener.outage import Outage
from expirebridge.listener.runner import Runner
from expirebridge.listener.server_clock import ServerClock
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import Call, Claim
from expirebridge.store.store import AsyncStore

logger = logging.getLogger("expirebridge")

RETRY_PAUSE = 0.1


class Claimer:
    """Turns rings into running tasks.

    A task whose listeners died twice is taken only by a listener that runs nothing else, and runs
    alone: if one waits, this listener claims nothing more until it is idle.

    `on_claimed` is told the key of each task that was claimed.
    """

    def __init__(
        self,
        store: AsyncStore,
        settings: Settings,
        *,
        doorbell: Doorbell,
        clock: Clock,
        server_clock: ServerClock,
        runner: Runner,
        hooks: Hooks,
        outage: Outage,
        on_claimed: Callable[[bytes], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._doorbell = doorbell
        self._clock = clock
        self._server_clock = server_clock
        self._runner = runner
        self._hooks = hooks
        self._outage = outage
        self._on_claimed = on_claimed
        self._share = max(settings.concurrency // 2, 1)
        """Tasks that one claim asks for at most: while they run, the server makes the next one."""
        self._alone = False
        """Whether nothing may be claimed until the runner is idle."""
        self._wants_room = False
        """Whether more may be due than there was room for."""
        self.behind = False
        """Whether the latest claim left something that is due."""
        self._stopping = False
        self._claiming = asyncio.Lock()

    async def stop(self) -> None:
        """Claim no more. A claim on its way is waited for: what it brings would be lost."""
        self._stopping = True
        async with self._claiming:
            pass

    def notice_room(self) -> None:
        """Look again if the last look ended for want of room."""
        if self._wants_room and self._may_claim():
            self._doorbell.ring()

    async def run(self) -> None:
        """Answer rings, for ever."""
        while True:
            await self._doorbell.answer()
            async with self._claiming:
                await self._claim_what_is_due()

    async def _claim_what_is_due(self) -> None:
        """Claim until nothing more is due, or there is no room."""
        taken, more = 0, True
        goes_on = self._may_claim()
        while goes_on:
            asked = time.monotonic()
            claim = await self._claim(taken)
            if claim is None:
                return
            self._take_note(claim)
            taken, more = len(claim.tasks), self.behind and bool(claim.tasks)
            goes_on = more and self._may_claim(taken)
            if goes_on:
                # The next claim is sent before these begin, so the server makes it while they run.
                asyncio.get_running_loop().call_soon(self._start, claim, asked)
            else:
                self._start(claim, asked)
        self._wants_room = more or self._alone

    def _take_note(self, claim: Claim) -> None:
        self._hooks.emit(Claimed(count=len(claim.tasks)))
        for id in claim.broken:
            logger.error(
                "task %r cannot run: its record is missing or broken", id,
                extra=event("broken record", task=id),
            )  # fmt: skip
        self._alone = claim.alone
        self.behind = claim.next_due is not None and claim.next_due <= claim.now_us // 1000
        self._clock.plan(claim.next_due, fruitless=self.behind and not claim.tasks)

    def _start(self, claim: Claim, asked: float) -> None:
        for task in claim.tasks:
            self._on_claimed(task.key)
            self._runner.start(task, asked=asked)

    def _may_claim(self, taken: int = 0) -> bool:
        """Whether there is room for more than the tasks that were taken and have not begun."""
        if self._stopping or (self._alone and (taken or not self._runner.idle)):
            return False
        return self._runner.room > taken

    async def _claim(self, taken: int) -> Claim | None:
        """Claim once, resending until there is an answer: what was claimed must not be lost.

        The tasks that were taken and have not begun need room, too.

        Only a listener that stops gives up, after one resend more, and leaves what it may have
        claimed to its lease.
        """
        room = min(self._runner.room - taken, self._share)
        idle = self._runner.idle and not taken
        call: Call[Claim] = calls.claim(calls.new_nonce(), self._settings, room=room, idle=idle)
        self._clock.notice_claim()
        while True:
            sent = time.monotonic()
            last = self._stopping
            try:
                claim = await self._store.run(call)
            except ServerError as error:
                self._outage.failed("claiming", error)
                if last:
                    return None
                call = calls.resent(call)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                self._outage.answered("claiming")
                self._server_clock.learn(claim.now_us, sent=sent, received=time.monotonic())
                return claim
