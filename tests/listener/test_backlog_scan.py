"""The scan: which walks a claim is given, and when the next claim is due."""

from collections.abc import Iterable
from typing import Any

import pytest

from expirebridge.listener.execution.leases import CodeVersion
from expirebridge.listener.partition import backlog as module
from expirebridge.listener.partition.backlog import END, FRONT, RECENT, BacklogScan
from expirebridge.listener.session import Membership
from expirebridge.settings import Doorbells, Settings
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls.claiming import Claim, Refusal, Walk, Walked
from tests.kit.monotonic import Clock
from tests.kit.sessions import code_of, code_without_handlers
from tests.kit.witness import registry_of

NOW = 1_795_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def scan_of(code: CodeVersion | None = None, listeners: int = 1) -> BacklogScan:
    membership = Membership(Doorbells.BOTH)
    membership.listeners = listeners
    return BacklogScan(code or code_without_handlers(), membership)


def asked(scan: BacklogScan) -> tuple[str, list[Walk]]:
    """The script of the next claim, and its walks."""
    call = scan.call("t", Settings(), places=9, alone=False, share=None)
    places: list[Any] = list(call.arguments[13:])
    return call.name, [Walk(*places[at : at + 4]) for at in range(0, len(places), 4)]


def answer(
    scan: BacklogScan,
    *walked: Walked,
    now: int = NOW,
    took: float = 0.01,
    tasks: Iterable[str] = (),
    **options: Any,
) -> None:
    claimed = [ClaimedTask(func, "t", func, b"[]", b"", 0, 1, 0, None) for func in tasks]
    claim = Claim(
        now_us=now * 1000, next_due=None, alone=False, shared=False, running=-1, broken=[],
        tasks=claimed, walked=walked, **options,
    )  # fmt: skip
    scan.take(claim, took)


def place(score: int, id: bytes = b"", *, finished: bool = True, left: int = 0) -> Walked:
    return Walked(b"%d" % score, id, finished, left)


def mixed(clock: Clock, **options: Any) -> BacklogScan:
    """A scan that has just learned that its fleet runs more than one code."""
    del clock
    scan = scan_of(**options)
    asked(scan)
    answer(scan, refusal=Refusal.OTHER_CLAIM)
    return scan


def test_while_all_run_one_code_claims_have_no_walks(clock: Clock) -> None:
    scan = scan_of()
    assert asked(scan) == ("claim", [])
    answer(scan)
    assert (scan.active, scan.pause, scan.seen, clock.now) == (False, None, FRONT, 1000)


def test_it_begins_with_what_became_due_of_late_and_a_pass_over_the_rest(clock: Clock) -> None:
    scan = mixed(clock)
    recent = b"%d" % (NOW - RECENT)
    assert scan.pause == 0
    assert asked(scan) == (
        "claim_known", [Walk(recent, b"", END), Walk(FRONT, b"", recent, 1)]
    )  # fmt: skip


def test_each_claim_goes_on_where_the_one_before_stopped(clock: Clock) -> None:
    scan = mixed(clock)
    asked(scan)
    answer(scan, place(NOW), place(5, b"a", finished=False))
    _, walks = asked(scan)
    assert walks == [
        Walk(b"%d" % NOW, b"", END), Walk(b"5", b"a", b"%d" % (NOW - RECENT), 1)
    ]  # fmt: skip
    assert scan.seen == b"%d" % NOW


def test_while_it_finds_nothing_it_pauses_as_long_as_claims_take(clock: Clock) -> None:
    scan = mixed(clock, listeners=3)
    asked(scan)
    answer(scan, place(NOW), place(5, b"a", finished=False), took=0.002)
    assert scan.unfinished
    assert scan.pause == pytest.approx(0.006)
    asked(scan)
    answer(scan, place(NOW), place(6, b"a", finished=False), tasks=["x"])
    assert scan.pause == 0


def test_after_a_full_claim_another_walk_is_first(clock: Clock) -> None:
    scan = mixed(clock)
    asked(scan)
    answer(scan, place(NOW, b"z", finished=False), place(0, finished=False), tasks=["x"])
    _, walks = asked(scan)
    assert [walk.last for walk in walks] == [b"%d" % (NOW - RECENT), END]
    answer(scan, place(5, finished=False), place(NOW), tasks=["x"])
    assert [walk.last for walk in asked(scan)[1]] == [END, b"%d" % (NOW - RECENT)]


def test_a_pass_is_followed_by_a_rest_and_then_by_another(clock: Clock) -> None:
    scan = mixed(clock, listeners=2)
    asked(scan)
    answer(scan, place(NOW), place(5, finished=False), took=0.2)
    asked(scan)
    answer(scan, place(NOW), place(6), took=0.3)
    assert scan.pause == pytest.approx((0.2 + 0.3) * 20 * 2)
    assert len(asked(scan)[1]) == 1
    clock.now += 20
    assert asked(scan)[1][1] == Walk(FRONT, b"", b"%d" % NOW, 1)


def test_a_fleet_that_changes_is_looked_at_from_the_front(clock: Clock) -> None:
    scan = mixed(clock)
    asked(scan)
    answer(scan, place(NOW), place(6), fleet=b"aa bb")
    assert len(asked(scan)[1]) == 1
    answer(scan, place(NOW), fleet=b"aa bb cc")
    assert scan.pause == 0
    assert asked(scan)[1][1].score == FRONT


def test_a_gap_is_followed_by_a_pass_but_cuts_none_short(clock: Clock) -> None:
    scan = mixed(clock)
    asked(scan)
    scan.start_over()
    answer(scan, place(NOW), place(6, b"a", finished=False))
    assert asked(scan)[1][1].score == b"6"
    answer(scan, place(NOW), place(7))
    assert asked(scan)[1][1].score == FRONT


def test_what_is_announced_as_due_before_is_looked_at(clock: Clock) -> None:
    scan = mixed(clock)
    asked(scan)
    answer(scan, place(NOW), place(6))
    scan.hear_of(NOW - 5000)
    scan.hear_of(NOW - 3000)
    scan.hear_of(NOW + 3000)
    back = Walk(b"%d" % (NOW - 5000), b"", b"%d" % NOW)
    assert asked(scan)[1] == [Walk(b"%d" % NOW, b"", END), back]
    answer(scan, place(NOW + 10), place(NOW - 4000, b"a", finished=False), now=NOW + 10)
    scan.hear_of(NOW - 4500)  # before the place that it has come to
    again = Walk(b"%d" % (NOW - 4500), b"", b"%d" % (NOW + 10))
    assert asked(scan)[1][1] == again
    answer(scan, place(NOW + 20), place(NOW), now=NOW + 20)
    assert len(asked(scan)[1]) == 1


def test_what_is_announced_a_moment_late_does_not_wait_for_a_walk_from_far_back(
    clock: Clock,
) -> None:
    scan = mixed(clock)
    asked(scan)
    answer(scan, place(NOW), place(6))
    scan.hear_of(NOW - 7_200_000)
    scan.hear_of(NOW - 3)
    scan.hear_of(NOW - 2)
    now, late = b"%d" % NOW, b"%d" % (NOW - 3)
    far = Walk(b"%d" % (NOW - 7_200_000), b"", now)
    assert asked(scan)[1] == [Walk(now, b"", END), Walk(late, b"", now), far]
    answer(scan, place(NOW), place(NOW), place(NOW - 7_100_000, finished=False))
    scan.hear_of(NOW - 1)
    assert asked(scan)[1] == [
        Walk(now, b"", END), Walk(b"%d" % (NOW - 1), b"", now),
        Walk(b"%d" % (NOW - 7_100_000), b"", now),
    ]  # fmt: skip


def test_what_is_heard_while_a_claim_is_on_its_way_outlives_its_answer(clock: Clock) -> None:
    """The task was made after the claim was carried out, due before its time."""
    scan = mixed(clock)
    asked(scan)
    scan.hear_of(NOW - 1)
    answer(scan, place(NOW), place(6))
    assert asked(scan)[1][1] == Walk(b"%d" % (NOW - 1), b"", b"%d" % NOW)


def test_a_claim_that_found_what_it_took_before_moves_nothing(clock: Clock) -> None:
    scan = mixed(clock)
    before = asked(scan)
    answer(scan, tasks=["x"])
    assert scan.unfinished
    assert sorted(asked(scan)[1]) == sorted(before[1])


def test_a_server_whose_clock_went_back_is_looked_at_anew(clock: Clock) -> None:
    scan = mixed(clock)
    asked(scan)
    answer(scan, place(NOW), place(6))
    asked(scan)
    answer(scan, place(NOW - 7000), now=NOW - 7000)
    fresh = b"%d" % (NOW - 7000 - RECENT)
    assert asked(scan)[1] == [Walk(fresh, b"", END), Walk(FRONT, b"", fresh, 1)]


def test_it_ends_when_all_run_one_code_again(clock: Clock) -> None:
    scan = mixed(clock)
    asked(scan)
    answer(scan, refusal=Refusal.OTHER_CLAIM)
    assert asked(scan) == ("claim", [])


def test_many_tasks_that_nobody_knows_are_passed_over_until_few_are_left(clock: Clock) -> None:
    code = code_of(registry_of(note=lambda: None))
    scan = scan_of(code)
    for _ in range(2):
        asked(scan)
        answer(scan, tasks=["mail.other"] * 50 + ["test.note"])
    assert (code.stranded, scan.active) == (False, False)
    asked(scan)
    answer(scan, tasks=["mail.other"])
    assert (code.stranded, scan.active) == (True, True)
    assert code.text == f"{code.fingerprint.digest} ?"
    assert code.beat == f"{code.fingerprint.digest} ? =100"
    for left, stranded in ((50, True), (49, False)):
        scan.start_over()
        asked(scan)
        answer(scan, place(NOW), place(6, left=left))
        assert code.stranded is stranded


def test_a_few_tasks_now_and_then_that_nobody_knows_are_claimed(clock: Clock) -> None:
    scan = scan_of(code_without_handlers())
    for _ in range(9):
        asked(scan)
        answer(scan, tasks=["mail.other"] * 90)
        clock.now += 16
    assert not scan.active
