"""Fairness: when a claim is limited to the share, and when the rest is asked for."""

import pytest

from expirebridge.listener.execution.capacity import Capacity, Wakeup
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.partition import fair_share as module
from expirebridge.listener.partition.fair_share import DISTRUST, PATIENCE, FairShare
from expirebridge.listener.session import Membership
from expirebridge.settings import Doorbells
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls.claiming import Claim, FairShareInput, Refusal
from tests.kit.monotonic import Clock

NOW = 1_795_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Consumer:
    """One of so many listeners, which runs three tasks and asks with two places."""

    def __init__(self, listeners: int = 2) -> None:
        self.membership = Membership(Doorbells.BOTH)
        self.membership.listeners = listeners
        capacity = Capacity(10, InFlight())
        capacity.acquire(Wakeup(), 5)
        self.fairness = FairShare(self.membership, capacity)

    def share(self) -> FairShareInput | None:
        return self.fairness.share(2)

    def is_limited(self) -> bool:
        share = self.share()
        assert share is not None
        return share.held is not None

    def answer(
        self,
        *due: int,
        shared: bool = False,
        refusal: Refusal | None = None,
        at: int = NOW,
        first: int | None = None,
        running: int = -1,
    ) -> None:
        tasks = [ClaimedTask("a", "t", "f", b"[]", b"", at, 1, 0, None) for at in due]
        claim = Claim(
            now_us=at * 1000, next_due=first, alone=False, shared=shared, running=running,
            broken=[], tasks=tasks, refusal=refusal,
        )  # fmt: skip
        self.fairness.take(claim)


def test_the_only_listener_has_no_share(clock: Clock) -> None:
    del clock
    assert Consumer(listeners=1).share() is None


def test_what_runs_counts_and_what_is_only_reserved_does_not(clock: Clock) -> None:
    del clock
    consumer = Consumer(listeners=4)
    consumer.membership.codes = [("aa", 3), ("bb", 1)]
    assert consumer.share() == FairShareInput(4, 3, [("aa", 3), ("bb", 1)])


def test_what_was_left_is_asked_for_after_a_moment_without_a_limit(clock: Clock) -> None:
    consumer = Consumer()
    assert consumer.share()
    consumer.answer(shared=True)
    assert consumer.fairness.pause == pytest.approx(PATIENCE)
    clock.now += PATIENCE / 2
    assert consumer.is_limited(), "another ring"
    consumer.answer(shared=True)
    assert consumer.fairness.pause == pytest.approx(PATIENCE / 2), "it does not begin again"
    clock.now += PATIENCE
    assert consumer.fairness.pause == 0
    assert not consumer.is_limited()


@pytest.mark.parametrize("refusal", Refusal)
def test_a_claim_that_looked_at_no_task_changes_nothing(clock: Clock, refusal: Refusal) -> None:
    del clock
    consumer = Consumer()
    consumer.share()
    consumer.answer(shared=True)
    consumer.answer(refusal=refusal)
    assert consumer.fairness.pause is not None


def test_if_others_took_the_rest_the_limit_counts_again(clock: Clock) -> None:
    consumer = Consumer()
    consumer.share()
    consumer.answer(shared=True)
    clock.now += PATIENCE
    consumer.share()
    consumer.answer(NOW + 1)  # it became due after the others were left theirs
    assert consumer.fairness.pause is None
    assert consumer.is_limited()


def test_if_nobody_took_the_rest_there_is_no_limit_for_a_while(clock: Clock) -> None:
    consumer = Consumer()
    consumer.share()
    consumer.answer(shared=True)
    clock.now += PATIENCE
    assert not consumer.is_limited()
    consumer.answer(NOW)
    clock.now += DISTRUST - 1
    assert not consumer.is_limited()
    clock.now += 2
    assert consumer.is_limited()


def test_a_share_that_grew_in_time_is_no_reason_for_distrust(clock: Clock) -> None:
    del clock
    consumer = Consumer()
    consumer.share()
    consumer.answer(shared=True)
    consumer.share()
    consumer.answer(NOW)
    assert consumer.is_limited()


@pytest.mark.parametrize(("first", "is_asked_for"), [(NOW, True), (NOW + 1, False)])
def test_if_others_took_what_was_left_first_the_wait_is_for_the_next(
    clock: Clock, first: int, is_asked_for: bool
) -> None:
    consumer = Consumer()
    consumer.share()
    consumer.answer(shared=True, first=NOW)
    clock.now += PATIENCE / 2
    consumer.share()
    consumer.answer(shared=True, first=first, at=NOW + 5)
    clock.now += PATIENCE / 2
    assert (consumer.fairness.pause == 0) is is_asked_for


# Whose turn it is


@pytest.mark.parametrize(
    ("listeners", "rank", "running", "turn", "first_turn"),
    [
        # It runs five.
        (1, 0, -1, 0, 0),
        (2, 0, 10, 0, 0),
        (2, 1, 10, 1, 0),  # as many as the other, which is before it
        (2, 0, 9, 1, 0),  # more than the other
        (2, 1, 9, 1, 0),
        (2, 1, 11, 0, 0),  # fewer than the other
        (2, 1, 12, 0, 0),  # one of its own has ended
        (8, 7, 40, 7, 0),
        (8, 7, 43, 4, 0),  # three run one more
        (8, 7, 39, 7, 0),  # one runs fewer
        (8, 7, 3, 7, 4),  # five run none
        (8, 3, 0, 8, 3),
    ],
)
def test_those_that_run_fewer_ask_first(
    clock: Clock, listeners: int, rank: int, running: int, turn: int, first_turn: int
) -> None:
    del clock
    consumer = Consumer(listeners)
    consumer.membership.rank = rank
    consumer.share()
    consumer.answer(running=running)
    assert (consumer.fairness.turn, consumer.fairness.first_turn) == (turn, first_turn)


def test_without_a_limit_the_rank_decides(clock: Clock) -> None:
    consumer = Consumer()
    consumer.membership.rank = 1
    consumer.share()
    consumer.answer(shared=True, running=4)
    clock.now += PATIENCE
    consumer.share()
    consumer.answer(NOW, running=4)
    assert consumer.fairness.turn == 1
    clock.now += DISTRUST
    assert consumer.fairness.turn == 2
