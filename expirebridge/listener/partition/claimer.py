"""The claimer: claims due tasks at each wake-up, as far as there is capacity."""

import asyncio
import contextlib
import logging
import time
from dataclasses import replace

from expirebridge.errors import ServerError
from expirebridge.hooks import Claimed, Hooks
from expirebridge.listener.execution.attempt import Consumer
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.execution.settler import Settler
from expirebridge.listener.partition.backlog import BacklogScan
from expirebridge.listener.partition.due_timer import DueTimer
from expirebridge.listener.partition.fair_share import FairShare
from expirebridge.listener.partition.key_events import KeyEventHandler
from expirebridge.listener.session import PartitionSession
from expirebridge.listener.wakeups import PATIENCE, Responsiveness
from expirebridge.settings import Settings
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls import claiming
from expirebridge.task.calls.call import Command, command
from expirebridge.task.calls.claiming import Claim, Refusal
from expirebridge.task.lateness import LateCause
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

ROLE = "claiming"
RETRY_PAUSE = 0.1
NO_PLACES = "its listener had no room for it when the claim was answered"


class Claimer:
    """Claims due tasks and starts them, at each wake-up.

    It acquires places before it asks, and takes no more than its listener's share, unless others
    let the rest lie. A task whose listeners died twice runs alone in its process: if one waits,
    nothing more is claimed until the process is idle, and then that task.
    """

    def __init__(
        self,
        consumer: Consumer,
        settings: Settings,
        *,
        settler: Settler,
        wakeup: Wakeup,
        due_timer: DueTimer,
        scan: BacklogScan,
        fair_share: FairShare,
        key_events: KeyEventHandler,
        executor: Executor,
        hooks: Hooks,
    ) -> None:
        self._consumer = consumer
        self._settings = settings
        self._settler = settler
        self._wakeup = wakeup
        self._due_timer = due_timer
        self._scan = scan
        self._fair_share = fair_share
        self._key_events = key_events
        self._executor = executor
        self._capacity = executor.capacity
        self._hooks = hooks
        self._hindrances = consumer.hindrances
        self._most = min(max(settings.concurrency // 2, 1), claiming.MAX_CLAIM)
        """Tasks that one claim asks for at most: while they run, the server makes the next one."""
        self._has_places = True
        self._places = 0
        """Those that are reserved for the claim on its way."""
        self._timer: asyncio.Handle
        self._stopping = self._suspended = False
        self._claiming = asyncio.Lock()

    async def stop(self) -> None:
        """Claim no more. A claim on its way is waited for: what it brings would be lost."""
        self._stopping = True
        self._settler.claims = False
        self._wakeup.set()
        async with self._claiming:
            self._capacity.withdraw(self._wakeup)

    async def suspend(self) -> None:
        """Claim no more until `resume`; return when what a claim on its way brought has begun."""
        self._suspended = True
        self._settler.claims = False
        async with self._claiming:
            pass
        if self._suspended:
            self._hindrances.begin(LateCause.NOBODY)

    def resume(self) -> None:
        """Claim again, at once."""
        self._suspended = False
        self._settler.claims = not self._stopping
        self._wakeup.set()

    async def run(self) -> None:
        """Claim at each wake-up."""
        while True:
            await self._wait()
            async with self._claiming:
                await self._claim_what_is_due()

    async def _wait(self) -> None:
        """Wait for a wake-up; with capacity, only until the share or the scan asks for a claim."""
        left = self._fair_share.pause
        pause = left if left is not None else self._scan.pause
        if pause is None or not self._has_places:
            await self._wakeup.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wakeup.wait()

    async def _claim_what_is_due(self) -> None:
        """Claim until nothing more is due, or no place is free."""
        if (
            responsiveness := self._consumer.session.responsiveness
        ) is not None and responsiveness.lost:
            await self._await_answer()
        places = self._reserve()
        while places:
            asked = time.monotonic()
            claim = await self._claim(places)
            if claim is None:
                return
            self._take_note(claim, time.monotonic() - asked)
            rest = self._due_timer.behind and not claim.shared
            if claim.refusal is Refusal.UNDECLARED and not await self._declare_limits():
                return
            more = claim.refusal is not None or (rest and bool(claim.tasks or claim.parked))
            places = self._reserve() if more else 0
            if places:
                # The next claim is sent before these begin, so the server makes it while they run.
                asyncio.get_running_loop().call_soon(self._start, claim.tasks, asked)
            else:
                self._start(claim.tasks, asked)

    def _reserve(self) -> int:
        """Places for the next claim. Without any, the claimer is woken when there are some."""
        closed = self._stopping or self._suspended
        most = 0 if closed else min(self._most, self._settler.claim_limit())
        places = self._capacity.acquire(self._wakeup, most) if most else 0
        self._has_places = places > 0
        if not closed:
            self._hindrances.backlog.note_room(has_room=self._has_places)
        return places

    async def _claim(self, places: int) -> Claim | None:
        """Claim once, resending until there is an answer: what was claimed must not be lost.

        A server that does not answer in time keeps no places from other consumers: what a late
        answer brings must find places again. Only a listener that stops gives up, after one resend
        more, and leaves what it may have claimed to its lease.
        """
        alone = self._capacity.is_exclusive(self._wakeup)
        call = self._scan.call(
            self._consumer.leases.tokens.next(), self._settings, places=places, alone=alone,
            share=self._fair_share.share(places),
        )  # fmt: skip
        self._due_timer.notice_claim()
        self._places = places
        asked, failed = time.monotonic(), False
        while True:
            session = self._consumer.session
            sent = time.monotonic()
            last = self._stopping
            try:
                claim = await self._send(call, session)
            except ServerError as error:
                session.health.failed(ROLE, error)
                failed = True
                self._give_up_places(session.responsiveness)
                if last:
                    return None
                call = claiming.resent(call)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                session.health.answered(ROLE)
                if session is not self._consumer.session:
                    # A superseded primary claimed; its successor has that if it was replicated.
                    call = claiming.resent(call)
                    failed = True
                    continue
                session.server_clock.learn(claim.now_us, sent=sent, received=time.monotonic())
                self._hindrances.note_trip(asked, failed=failed)
                patience = self._settings.lease / 2 if session.responsiveness else 0.0
                return await self._fit(claim, until=sent + patience, alone=alone)

    async def _send(self, call: Command[Claim], session: PartitionSession) -> Claim:
        """Send a claim; while one node of several does not answer, its places go to the others."""
        responsiveness = session.responsiveness
        if responsiveness is None:
            return await session.store.run(call)
        self._expect_answer(responsiveness)
        try:
            claim = await session.store.run(call)
        finally:
            self._timer.cancel()
        responsiveness.lost = False
        return claim

    def _expect_answer(self, responsiveness: Responsiveness) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PATIENCE, self._doubt, responsiveness, loop.time() + PATIENCE)

    def _doubt(self, responsiveness: Responsiveness, at: float) -> None:
        """Suspect the server: no answer was read by that time of the event loop."""
        loop = asyncio.get_running_loop()
        if loop.time() > at + PATIENCE:
            # This process stood still, and perhaps not the node.
            self._expect_answer(responsiveness)
        else:
            # An answer that has come in the meantime is read first.
            self._timer = loop.call_soon(self._notice_silence, responsiveness)

    def _notice_silence(self, responsiveness: Responsiveness) -> None:
        responsiveness.lost = True
        self._give_up_places(responsiveness)

    def _give_up_places(self, responsiveness: Responsiveness | None) -> None:
        """Release the places; also the exclusive use of all, if others can use them."""
        places, self._places = self._places, 0
        self._capacity.release(places)
        if responsiveness is not None:
            self._capacity.release_exclusive(self._wakeup)

    async def _await_answer(self) -> None:
        """Wait until the node answers, without a place or a turn."""
        self._capacity.withdraw(self._wakeup)
        began = time.monotonic()
        while not self._stopping:
            session = self._consumer.session
            if session.responsiveness is None or not session.responsiveness.lost:
                self._hindrances.note_trip(began, failed=True)
                return
            try:
                await session.store.run(command("PING"))
            except ServerError as error:
                session.health.failed(ROLE, error)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                session.health.answered(ROLE)
                session.responsiveness.lost = False

    async def _fit(self, claim: Claim, *, until: float, alone: bool) -> Claim:
        """Keep as many places as the claim brought tasks. If the answer was late, and the places
        went to others, what finds none is given back; so is what was to run alone.
        """
        brought = len(claim.tasks)
        places, self._places = self._places, 0
        if places:
            self._capacity.release(places - brought)
            return claim
        if alone and not self._capacity.is_exclusive(self._wakeup):
            brought = 0
        places = await self._find_places(brought, until)
        for task in claim.tasks[places:]:
            self._executor.give_back(task, self._consumer, NO_PLACES)
        return replace(claim, tasks=claim.tasks[:places])

    async def _find_places(self, wanted: int, until: float) -> int:
        """Wait in line for so many places; return how many there were by that time (monotonic).

        Other consumers reserve more than they fill, and leave the rest in a moment.
        """
        places = self._capacity.acquire(self._wakeup, wanted) if wanted else 0
        woken = False
        while places < wanted and not self._stopping and time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - time.monotonic()):
                    await self._wakeup.wait()
            places += self._capacity.acquire(self._wakeup, wanted - places)
            woken = True
        if woken:
            self._wakeup.set()  # it may have been for something else
        return places

    async def _declare_limits(self) -> bool:
        """Declare the limits of the handlers again, which the database has lost; True if it did."""
        declaration = self._consumer.leases.limits_declaration
        if declaration is None:
            return False
        session = self._consumer.session
        try:
            await session.store.run(declaration)
        except ServerError as error:
            session.health.failed(ROLE, error)
            await asyncio.sleep(RETRY_PAUSE)
            self._wakeup.set()
            return False
        return True

    def _take_note(self, claim: Claim, took: float) -> None:
        self._scan.take(claim, took)
        self._fair_share.take(claim)
        self._hindrances.note_claim(withholds=self._scan.withholds, leaves=self._scan.leaves)
        if claim.refusal is not None:
            return
        if claim.tasks or not self._scan.unfinished:
            self._hooks.emit(Claimed(count=len(claim.tasks)))
        for id in claim.broken:
            logger.error(
                "task %r cannot run: its record is missing or broken", id,
                extra=event("broken record", task=id),
            )  # fmt: skip
        if claim.alone:
            self._capacity.request_exclusive(self._wakeup)
        else:
            self._capacity.release_exclusive(self._wakeup)
        now_us, next_due = claim.now_us, claim.next_due
        if self._scan.unfinished and claim.tasks:
            next_due = now_us // 1000
        self._due_timer.plan(next_due, now_us=now_us, count=len(claim.tasks), shared=claim.shared)
        self._hindrances.backlog.note_rest(left=self._due_timer.behind or self._scan.unfinished)

    def _start(self, tasks: list[ClaimedTask], asked: float) -> None:
        for task in tasks:
            self._key_events.expect_end_of(task.key)
            self._executor.start(task, self._consumer, asked=asked)
