"""Fairness: when a claim is limited to the share, and when the rest is asked for."""

import pytest

from expirebridge.listener.doorbell import Doorbell
from expirebridge.listener.runner.room import Room
from expirebridge.listener.runner.unsettled import Unsettled
from expirebridge.listener.station import fairness as module
from expirebridge.listener.station.fairness import DISTRUST, PATIENCE, Fairness
from expirebridge.listener.station.standing import Standing
from expirebridge.settings import Doorbells
from expirebridge.store.calls import Claim, Share
from expirebridge.store.views import ClaimedTask
from tests.kit.monotonic import Clock

NOW = 1_795_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Station:
    """One of so many listeners, which runs three tasks and asks with two places."""

    def __init__(self, listeners: int = 2) -> None:
        self.standing = Standing(Doorbells.BOTH)
        self.standing.listeners = listeners
        room = Room(10, Unsettled())
        room.reserve(Doorbell(), 5)
        self.fairness = Fairness(self.standing, room)

    def share(self) -> Share | None:
        return self.fairness.share(2)

    def answer(self, *due: int, shared: bool = False, wrong_way: bool = False) -> None:
        tasks = [ClaimedTask("a", "t", "f", b"[]", b"", at, 1, 0, None) for at in due]
        claim = Claim(
            now_us=NOW * 1000, next_due=None, alone=False, shared=shared, broken=[], tasks=tasks,
            wrong_way=wrong_way,
        )  # fmt: skip
        self.fairness.take(claim)


def test_the_only_listener_has_no_share(clock: Clock) -> None:
    del clock
    assert Station(listeners=1).share() is None


def test_what_runs_counts_and_what_is_only_reserved_does_not(clock: Clock) -> None:
    del clock
    station = Station(listeners=4)
    station.standing.codes = [("aa", 3), ("bb", 1)]
    assert station.share() == Share(4, 3, [("aa", 3), ("bb", 1)])


def test_what_was_left_is_asked_for_after_a_moment_without_a_limit(clock: Clock) -> None:
    station = Station()
    assert station.share()
    station.answer(shared=True)
    assert station.fairness.pause == pytest.approx(PATIENCE)
    clock.now += PATIENCE / 2
    assert station.share(), "another ring"
    station.answer(shared=True)
    assert station.fairness.pause == pytest.approx(PATIENCE / 2), "it does not begin again"
    clock.now += PATIENCE
    assert station.fairness.pause == 0
    assert station.share() is None


def test_a_claim_that_suits_another_fleet_changes_nothing(clock: Clock) -> None:
    del clock
    station = Station()
    station.share()
    station.answer(shared=True)
    station.answer(wrong_way=True)
    assert station.fairness.pause is not None


def test_if_others_took_the_rest_the_limit_counts_again(clock: Clock) -> None:
    station = Station()
    station.share()
    station.answer(shared=True)
    clock.now += PATIENCE
    station.share()
    station.answer(NOW + 1)  # it became due after the others were left theirs
    assert station.fairness.pause is None
    assert station.share()


def test_if_nobody_took_the_rest_there_is_no_limit_for_a_while(clock: Clock) -> None:
    station = Station()
    station.share()
    station.answer(shared=True)
    clock.now += PATIENCE
    assert station.share() is None
    station.answer(NOW)
    clock.now += DISTRUST - 1
    assert station.share() is None
    clock.now += 2
    assert station.share()


def test_a_share_that_grew_in_time_is_no_reason_for_distrust(clock: Clock) -> None:
    del clock
    station = Station()
    station.share()
    station.answer(shared=True)
    station.share()
    station.answer(NOW)
    assert station.share()
