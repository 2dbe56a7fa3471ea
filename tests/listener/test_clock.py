"""The clock rings when the earliest task that is known is due."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from expirebridge.hooks import Hooks
from expirebridge.listener.execution.capacity import Capacity, Wakeup
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.hindrances import Hindrances, LoopPulse
from expirebridge.listener.partition import due_timer
from expirebridge.listener.partition.backlog import BacklogScan
from expirebridge.listener.partition.due_timer import DueTimer, LeadTime
from expirebridge.listener.partition.fair_share import FairShare
from expirebridge.listener.session import Membership
from expirebridge.settings import Doorbells
from expirebridge.task.calls.claiming import Claim
from tests.kit.patience import PATIENCE
from tests.kit.sessions import code_without_handlers, owner_of


@asynccontextmanager
async def ringing(of: DueTimer) -> AsyncIterator[None]:
    running = asyncio.create_task(of.run())
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    finally:
        running.cancel()


@pytest.fixture(autouse=True)
def only_when_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_timer, "LONGEST_SLEEP", 3600.0)


def clock_for(wakeup: Wakeup, fair_share: FairShare | None = None) -> DueTimer:
    membership = Membership(Doorbells.BOTH)
    scan = BacklogScan(code_without_handlers(), membership)
    owner = owner_of()
    return DueTimer(
        owner, "expirebridge", wakeup=wakeup, scan=scan, hooks=Hooks(),
        hindrances=Hindrances(owner, LoopPulse(), lease=30),
        fair_share=fair_share or FairShare(membership, Capacity(1, InFlight())),
    )  # fmt: skip


def ms_from_now(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


async def test_it_rings_for_the_earliest_of_what_it_heard_and_what_a_claim_found() -> None:
    for heard, found in ((0, 1000), (1000, 0)):
        wakeup = Wakeup()
        alarm = clock_for(wakeup)
        alarm.notice_claim()
        alarm.plan(ms_from_now(found), now_us=0, count=0)
        alarm.hear_of(ms_from_now(heard))
        async with ringing(alarm):
            await wakeup.wait()


async def test_what_is_heard_while_a_claim_is_on_its_way_outlives_its_answer() -> None:
    """The task may have been made after the claim was carried out, before its reply was read."""
    for found in (ms_from_now(1000), None):
        wakeup = Wakeup()
        alarm = clock_for(wakeup)
        alarm.notice_claim()
        alarm.hear_of(ms_from_now(0))
        alarm.plan(found, now_us=0, count=0)
        async with ringing(alarm):
            await wakeup.wait()


async def test_what_was_heard_before_a_claim_is_known_to_its_answer() -> None:
    alarm = clock_for(Wakeup())
    alarm.hear_of(ms_from_now(0))
    alarm.notice_claim()
    alarm.plan(None, now_us=0, count=0)
    async with ringing(alarm):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):  # time passes: nothing may ring
                await alarm._wakeup.wait()


async def test_what_a_claim_finds_while_the_clock_looks_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer to the look may be older than the claim's."""
    wakeup = Wakeup()

    async def look(_: DueTimer) -> int:
        monkeypatch.setattr(due_timer, "LONGEST_SLEEP", 3600.0)
        alarm.plan(ms_from_now(0.05), now_us=0, count=0)
        return ms_from_now(3600)

    monkeypatch.setattr(due_timer, "LONGEST_SLEEP", 0.01)
    monkeypatch.setattr(DueTimer, "_look", look)
    alarm = clock_for(wakeup)
    async with ringing(alarm):
        await wakeup.wait()


@pytest.mark.parametrize("ends", [False, True])
async def test_who_runs_as_many_as_others_of_a_lower_rank_waits_until_one_of_its_tasks_ends(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Two listeners ran two tasks each when this one, the second, last asked."""
    monkeypatch.setattr(due_timer, "TURN", 3600.0)
    membership, capacity, wakeup = Membership(Doorbells.BOTH), Capacity(9, InFlight()), Wakeup()
    membership.rank, membership.listeners = 1, 2
    capacity.acquire(wakeup, 2)
    fair_share = FairShare(membership, capacity)
    fair_share.take(
        Claim(
            now_us=0, next_due=None, alone=False, shared=False, running=4, broken=[], tasks=[]
        )
    )  # fmt: skip
    alarm = clock_for(wakeup, fair_share)
    alarm.plan(ms_from_now(0.05), now_us=0, count=0)
    async with ringing(alarm):
        await asyncio.sleep(0)
        if ends:
            capacity.release()
            await wakeup.wait()
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wakeup.wait(), 0.2)  # time passes: nothing may ring


class LongLead(LeadTime):
    """Always the same: half a minute."""

    def __init__(self) -> None:
        self.seconds = 30.0
        self.delays: list[float] = []

    def learn(self, delay: float) -> None:
        self.delays.append(delay)


async def test_it_rings_ahead_once_and_then_when_the_task_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lead, wakeup = LongLead(), Wakeup()
    monkeypatch.setattr(due_timer, "LeadTime", lambda: lead)
    alarm = clock_for(wakeup)
    clock = alarm._consumer.session.server_clock
    due = ms_from_now(30.2)
    alarm.plan(due, now_us=0, count=0)
    async with ringing(alarm):
        await wakeup.wait()
        assert 0 < clock.seconds_until(due) <= 30
        alarm.notice_claim()
        now = clock.now()
        clock._offset += clock.seconds_until(due) - 0.2  # half a minute goes by
        alarm.plan(due, now_us=int(now * 1e6), count=0)
        await wakeup.wait()
        assert clock.seconds_until(due) <= 0
    assert lead.delays == [pytest.approx(now - due / 1000, abs=0.001)]


async def test_a_claim_for_which_there_was_no_time_to_ring_ahead_teaches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lead, wakeup = LongLead(), Wakeup()
    monkeypatch.setattr(due_timer, "LeadTime", lambda: lead)
    alarm = clock_for(wakeup)
    alarm.plan(ms_from_now(0.1), now_us=0, count=0)
    async with ringing(alarm):
        await wakeup.wait()
        alarm.notice_claim()
        alarm.plan(None, now_us=int(time.time() * 1e6), count=1)
    assert lead.delays == []
