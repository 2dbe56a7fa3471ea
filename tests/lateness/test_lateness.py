"""Why a task began late: what is derived from what hindered a listener."""

import asyncio
import time
from typing import Any

import pytest

from expirebridge.listener.hindrances import (
    KEPT,
    STILL,
    BacklogTimes,
    Hindrance,
    Hindrances,
    LoopPulse,
    cause_of,
)
from expirebridge.listener.session import ServerClock
from expirebridge.store.task_records import ClaimedTask, claimed_from, late_from
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.lateness import LateCause, Lateness, words_of
from expirebridge.task.objective import Objective
from tests.kit.sessions import owner_of

LEASE = 30.0


def hindrances() -> Hindrances:
    return Hindrances(owner_of(), LoopPulse(), lease=LEASE)


def claimed(due: float, **values: Any) -> ClaimedTask:
    common: dict[str, Any] = {"made": int(due) - 100, "attempt": 1, "lapses": 0}
    return ClaimedTask(
        id="a", token="t", func="mail.send", args=b"[]", key=b"", due=int(due * 1000),
        **common | values,
    )  # fmt: skip


def why(of: Hindrances, late: float, **values: Any) -> LateCause:
    """Why a task begins now that was due so many seconds ago."""
    now = time.time()
    return of.cause_of(claimed(now - late, **values), now)


def test_each_cause_has_words() -> None:
    assert len({words_of(cause) for cause in LateCause}) == len(LateCause)
    assert str(Lateness(12.0, LateCause.NO_ROOM)) == "12s late: no room in the listeners"


def test_the_cause_is_what_most_of_the_time_counts_for() -> None:
    away = Hindrance(5, 10.0, 14.0, LateCause.NODE_AWAY)
    room = Hindrance(7, 0.0, 20.0, LateCause.NO_ROOM)
    assert cause_of([], 10, 20) is LateCause.UNKNOWN
    assert cause_of([away], 10, 17) is LateCause.NODE_AWAY
    assert cause_of([away], 10, 19) is LateCause.UNKNOWN
    assert cause_of([room, away], 9, 15) is LateCause.NODE_AWAY
    assert cause_of([room, away], 9, 20) is LateCause.NO_ROOM
    assert cause_of([away, away], 10, 19) is LateCause.UNKNOWN  # each moment counts once
    # When it waited for its limit is not known.
    assert cause_of([away], 10, 20, (LateCause.LIMIT, 3.0)) is LateCause.NODE_AWAY
    assert cause_of([away], 10, 20, (LateCause.LIMIT, 5.0)) is LateCause.LIMIT
    assert cause_of([], 10, 20, (LateCause.LIMIT, 4.0)) is LateCause.UNKNOWN


def test_without_a_hindrance_the_cause_is_unknown() -> None:
    assert why(hindrances(), 5) is LateCause.UNKNOWN


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"waited": 4.0}, LateCause.LIMIT),
        ({"waited": 4.0, "held": 1.0}, LateCause.LIMIT),
        ({"waited": 4.0, "held": 3.0}, LateCause.HOLD),
        ({"waited": 1.0}, LateCause.UNKNOWN),
        ({"lapses": 1}, LateCause.TAKEN_OVER),
        ({"given_back": True}, LateCause.TAKEN_OVER),
        ({"made_ago": 1}, LateCause.MADE_LATE),
        ({"made_ago": 1, "ledger": b"0 0"}, LateCause.LEDGER),
        ({"made_ago": 6}, LateCause.UNKNOWN),
    ],
)
def test_what_the_record_tells(values: dict[str, Any], cause: LateCause) -> None:
    if "waited" in values:
        values = values | {"shown": {"waited": values["waited"]}}
    if "made_ago" in values:
        values = values | {"made": int(time.time()) - values["made_ago"]}
    given = {name: value for name, value in values.items() if name not in {"waited", "made_ago"}}
    assert why(hindrances(), 5, **given) is cause


def test_a_tick_is_made_late_because_of_what_hindered_that() -> None:
    of = hindrances()
    tick = {"made": int(time.time()) - 1, "shown": {"tick": None}}
    assert why(of, 5, **tick) is LateCause.MADE_LATE
    of.note_heartbeat(10.0, others_are_full=False)
    of.note_heartbeat(20.0, others_are_full=False)
    assert why(of, 5, **tick) is LateCause.NOBODY


def test_a_gap_between_heartbeats_is_a_time_without_a_listener() -> None:
    of = hindrances()
    of.note_heartbeat(0.5, others_are_full=True)
    of.note_claim(withholds=False, leaves=False)
    of.note_heartbeat(LEASE / 2 - 1, others_are_full=False)
    assert why(of, 5) is LateCause.NO_ROOM  # before it joined
    of.note_heartbeat(LEASE / 2 + 1, others_are_full=False)
    assert why(of, 5) is LateCause.NOBODY
    assert why(of, 60) is LateCause.NO_ROOM


def test_an_answer_that_failed_or_came_slowly_counts_from_when_it_was_asked_for() -> None:
    of, now = hindrances(), time.monotonic()
    of.note_trip(now - 0.1, failed=False)
    assert why(of, 0.1) is LateCause.UNKNOWN
    of.note_trip(now - 4, failed=False)
    assert why(of, 5) is LateCause.SERVER_SLOW
    of.note_trip(now - 4, failed=True)
    assert why(of, 5) is LateCause.NODE_AWAY
    of.note_trip(now - 14, failed=True)  # another role had asked before
    assert why(of, 15) is LateCause.NODE_AWAY


def test_only_tasks_of_a_ledger_wait_for_it() -> None:
    of = hindrances()
    of.note_claim(withholds=True, leaves=False)
    of._open[LateCause.LEDGER] -= 4
    assert why(of, 5) is LateCause.UNKNOWN
    assert why(of, 5, ledger=b"0 0") is LateCause.LEDGER
    of.note_claim(withholds=False, leaves=False)
    assert why(of, 5, ledger=b"0 0") is LateCause.LEDGER


def test_what_a_pass_leaves_waits_for_the_next_one() -> None:
    of = hindrances()
    of.note_claim(withholds=False, leaves=True)
    of._open[LateCause.MANY_DUE] -= 4
    assert why(of, 5) is LateCause.MANY_DUE
    of.note_claim(withholds=False, leaves=False)
    assert LateCause.MANY_DUE not in of._open


def test_a_hindrance_that_comes_again_at_once_is_one() -> None:
    of = hindrances()
    for _ in range(3 * KEPT):
        of.begin(LateCause.EVENT_GAP)
        of.end(LateCause.EVENT_GAP)
    assert len(of._spans) == 1
    of.begin(LateCause.EVENT_GAP, time.monotonic() - 3)
    of.begin(LateCause.EVENT_GAP)
    assert why(of, 4) is LateCause.EVENT_GAP


def test_a_backlog_is_without_room_or_has_many_due() -> None:
    times = BacklogTimes()

    def told() -> list[LateCause]:
        return [cause for _, _, cause in times.spans()]

    times.note_rest(left=False)
    assert told() == []
    times.note_rest(left=True)
    assert told() == [LateCause.MANY_DUE]
    times.note_rest(left=False)
    times.note_room(has_room=False)
    assert told() == [LateCause.MANY_DUE, LateCause.NO_ROOM]
    times.note_room(has_room=True)
    times.note_rest(left=False)
    assert told()[-1] is LateCause.NO_ROOM
    for _ in range(10):
        times.note_rest(left=True)
        times.note_rest(left=False)
    assert len(told()) == 4


async def test_a_pause_of_the_event_loop_is_noticed() -> None:
    pulse = LoopPulse()
    pulse.start()
    began = time.monotonic()
    time.sleep(STILL + 0.1)  # noqa: ASYNC251 - that is what it is about
    [(since, until)] = pulse.pauses()  # before it has beaten again
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert since == pytest.approx(began, abs=0.1)
    assert until - since > STILL
    assert next(iter(pulse.pauses()))[0] == since
    pulse.stop()


def test_a_jump_of_the_clock_is_time_that_never_passed() -> None:
    clock, mono, now = ServerClock(), time.monotonic(), time.time()
    clock.learn(int(now * 1e6), sent=mono, received=mono + 0.001)
    clock.learn(int((now + 0.1) * 1e6), sent=mono, received=mono + 0.001)
    assert clock.jump is None
    clock.learn(int((now + 3600) * 1e6), sent=mono, received=mono + 0.001)
    jump: tuple[float, float] | None = clock.jump
    assert jump == pytest.approx((now, now + 3600), abs=1)
    clock.learn(int(now * 1e6), sent=mono, received=mono + 0.001)  # back: nothing is late by that
    assert clock.jump == jump


def test_a_record_tells_it_of_its_last_attempt_alone() -> None:
    record = {"late": b"1500 no-room 17", "started": b"17"}
    assert late_from(record) == Lateness(1.5, LateCause.NO_ROOM)
    assert late_from(record | {"started": b"18"}) is None
    assert late_from(record | {"late": b"1500 later-words 17"}) == Lateness(1.5, LateCause.UNKNOWN)
    for broken in (b"", b"x", b"x y 17", b"1 2", b"\xff \xff 17"):
        assert late_from(record | {"late": broken}) is None


def test_a_settlement_says_it_only_if_it_was_late() -> None:
    late = Lateness(1.5, LateCause.LIMIT)
    plain = Settlement("a", "t", "succeeded")
    assert plain.encode() == ("a t succeeded 0", "")
    assert plain._replace(late=late).encode() == ("a t succeeded 0 - 1500 limit", "")
    busy = Settlement("a", "t", "busy", told="pace")
    assert busy.encode() == ("a t busy 0 pace", "")
    assert busy._replace(late=late).encode() == ("a t busy 0 pace 1500 limit", "")


def test_a_settlement_says_how_an_objective_was_kept() -> None:
    late = Lateness(1.5, LateCause.LIMIT)
    kept = Settlement("a", "t", "succeeded", objective=Objective(2, is_kept=True))
    assert kept.encode() == ("a t succeeded 0 - - - +2000", "")
    missed = kept._replace(late=late, objective=Objective(1, is_kept=False))
    assert missed.encode() == ("a t succeeded 0 - 1500 limit -1000", "")
    assert missed._replace(told="pace").encode() == ("a t succeeded 0 pace 1500 limit -1000", "")


def test_a_claim_tells_what_it_waited_for_and_that_it_was_given_back() -> None:
    def read(head: bytes, waited: bytes | None, snoozes: bytes | None = None) -> ClaimedTask:
        rare = (None, None, None, None, None, None, None, None, snoozes, None, waited)
        return claimed_from((head, b"a:?f.g?[]", rare), "t")

    task = read(b"a 5 1 0 3", b"5000 4000")
    assert (task.waited, task.held, task.given_back) == (5.0, 4.0, False)
    task = read(b"a 5 1 0 3 again", b"5000")
    assert (task.waited, task.held, task.given_back) == (5.0, 0.0, True)
    assert not read(b"a 5 1 0 3 again", None, b"2").given_back
