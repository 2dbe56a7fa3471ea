"""The checker: each verdict, and each way to be wrong, over histories made by hand."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from expirebridge import State, Task
from tests.kit.checker import FORGOT, SETTLED_WITHIN, STARTED_WITHIN, Verdict, check
from tests.kit.history import (
    Cancelled,
    CutOff,
    Down,
    Ended,
    Event,
    Forgot,
    GaveUp,
    Killed,
    Made,
    PutOff,
    Started,
    Stopped,
)

DUE = 10_000
LEASE = 2.0
A, B, C = 7, 8, 9  # listeners' pids

MADE = Made(id="t", due=DUE, attempts=2, at=9_000)


def run(
    name: str,
    at: int,
    end: int | None = None,
    how: Literal["returned", "raised", "cancelled"] = "returned",
    *,
    pid: int = A,
    attempt: int = 1,
    lapses: int = 0,
    due: int = DUE,
) -> list[Event]:
    start = Started(id="t", run=name, attempt=attempt, lapses=lapses, due=due, pid=pid, at=at)
    if end is None:
        return [start]
    error = "it was planned" if how == "raised" else ""
    return [start, Ended(id="t", run=name, how=how, error=error, at=end)]


def killed(at: int, pid: int = A) -> Killed:
    return Killed(pid=pid, at=at, until=at + 2)


def put_off(at: int, due: int, *, running: bool = False) -> PutOff:
    return PutOff(id="t", due=due, running=running, at=at)


def cancelled(at: int, answer: str = "cancelled") -> Cancelled:
    return Cancelled(id="t", answer=answer, at=at)


def task(state: State, *, attempt: int = 1, lapses: int = 0, error: str | None = None) -> Task:
    return Task(
        id="t", func="recorded.work", key=b"", state=state, due=datetime.fromtimestamp(10, UTC),
        attempt=attempt, lapses=lapses, error=error,
    )  # fmt: skip


SUCCEEDED = task(State.SUCCEEDED)
RAISED = 'Traceback (most recent call last):\n  ...\nPlanned: "it was planned"'


def judge(found: Task | None, *events: Event, may_wait: bool = False) -> Verdict:
    return check([MADE, *events], {"t": found}, lease=LEASE, may_wait=may_wait)


def only_lost(verdict: Verdict) -> str:
    """Why the one task is lost; nothing else is wrong."""
    assert not verdict.early
    assert not verdict.unexplained
    assert not verdict.states
    assert not verdict.sound
    [fault] = verdict.lost
    assert fault.id == "t"
    assert MADE in fault.lines
    assert f"1 LOST\n  t: {fault.what}\n    Made(id='t'" in str(verdict)
    return fault.what


def only_unexplained(verdict: Verdict) -> str:
    """Which run has no reason; nothing else is wrong."""
    assert not verdict.lost
    assert not verdict.early
    assert not verdict.sound
    [fault] = verdict.unexplained
    assert "1 UNEXPLAINED" in str(verdict)
    return fault.what


# What is right


def test_a_task_that_ran_once() -> None:
    verdict = judge(SUCCEEDED, *run("r1", DUE + 3, DUE + 9))
    assert verdict.sound
    assert (verdict.acknowledged, verdict.states) == (1, {State.SUCCEEDED: 1})
    assert verdict.longest_delay == 3
    assert not verdict.twice


def test_a_start_in_the_due_millisecond_is_in_time() -> None:
    assert judge(SUCCEEDED, *run("r1", DUE, DUE)).sound


def test_a_retry_explains_a_run() -> None:
    events = [
        *run("r1", DUE, DUE + 5, "raised"),
        *run("r2", DUE + 300, DUE + 305, attempt=2, due=DUE + 299),
    ]
    verdict = judge(task(State.SUCCEEDED, attempt=2), *events)
    assert verdict.sound
    assert verdict.twice == {"retry": 1}


def test_a_task_that_raised_on_its_last_attempt_has_failed() -> None:
    events = [
        *run("r1", DUE, DUE + 5, "raised"),
        *run("r2", DUE + 300, DUE + 305, "raised", attempt=2),
    ]
    verdict = judge(task(State.FAILED, attempt=2, error=RAISED), *events)
    assert verdict.sound
    assert verdict.states == {State.FAILED: 1}


TIMED_OUT = task(State.FAILED, attempt=2, error="timed out after 0.3 s")


@pytest.mark.parametrize("how", ["cancelled", "returned"])
def test_a_timeout_explains_a_run_and_a_failure(how: Literal["cancelled", "returned"]) -> None:
    events = [
        *run("r1", DUE, DUE + 300, how),
        *run("r2", DUE + 400, DUE + 701, how, attempt=2),
    ]
    verdict = check([replace(MADE, timeout=0.3), *events], {"t": TIMED_OUT}, lease=LEASE)
    assert verdict.sound
    assert verdict.twice == {"timeout": 1}


OVERRAN = task(State.FAILED, attempt=2, error="timed out after 0.3 s and could not be stopped")


def test_a_listener_that_gave_up_explains_a_run_and_a_failure() -> None:
    """The second attempt may begin before the first one's process has ended."""
    events = [
        *run("r1", DUE),
        *run("r2", DUE + 400, pid=B, attempt=2),
        GaveUp(pid=A, at=DUE + 410),
        GaveUp(pid=B, at=DUE + 800),
    ]
    verdict = check([replace(MADE, timeout=0.3), *events], {"t": OVERRAN}, lease=LEASE)
    assert verdict.sound
    assert verdict.twice == {"overrun": 1}


@pytest.mark.parametrize(("timeout", "gave_up", "second"), [
    (None, GaveUp(pid=A, at=DUE + 410), {"attempt": 2}),
    (0.3, GaveUp(pid=C, at=DUE + 410), {"attempt": 2}),
    (0.3, GaveUp(pid=A, at=DUE + 200), {"attempt": 2}),
    (0.3, GaveUp(pid=A, at=DUE + 410), {"lapses": 1}),
    (0.3, GaveUp(pid=A, at=DUE + 410), {}),
])  # fmt: skip
def test_a_listener_that_gave_up_for_another_reason_explains_nothing(
    timeout: float | None, gave_up: GaveUp, second: dict[str, Any]
) -> None:
    events = [*run("r1", DUE), *run("r2", DUE + 400, DUE + 405, pid=B, **second), gave_up]
    verdict = check([replace(MADE, timeout=timeout), *events], {"t": SUCCEEDED}, lease=LEASE)
    assert only_unexplained(verdict) == "run r2 has no reason"


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_a_run_that_had_more_time_did_not_time_out(timeout: float | None) -> None:
    events = run("r1", DUE, DUE + 300, "cancelled", attempt=1)
    made = replace(MADE, timeout=timeout, attempts=1)
    assert not check([made, *events], {"t": replace(TIMED_OUT, attempt=1)}, lease=LEASE).sound


@pytest.mark.parametrize(("answer", "state"), [
    ("cancelled", State.CANCELLED), ("running", State.CANCELLED), ("running", State.SUCCEEDED),
])  # fmt: skip
def test_a_cancelled_task(answer: str, state: State) -> None:
    runs = run("r1", DUE, DUE + 9) if answer == "running" else []
    verdict = judge(task(state), *runs, cancelled(DUE + 5, answer))
    assert verdict.sound
    assert verdict.states == {state: 1}


@pytest.mark.parametrize("state", [State.PENDING, State.PAUSED])
def test_a_task_that_may_wait(state: State) -> None:
    verdict = judge(task(state), may_wait=True)
    assert verdict.sound
    assert verdict.states == {state: 1}


def test_only_a_task_that_returned_may_be_forgotten() -> None:
    hows: list[tuple[Literal["returned", "raised"], bool]] = [("returned", True), ("raised", False)]
    for how, sound in hows:
        events = [MADE, *run("r1", DUE, DUE + 9, how)]
        assert check(events, {"t": None}, lease=LEASE, may_forget=True).sound is sound
        assert not check(events, {"t": None}, lease=LEASE).sound


def test_a_kill_explains_a_run_and_has_a_recovery() -> None:
    events = [
        *run("r1", DUE),
        killed(DUE + 10),
        *run("r2", DUE + 2510, DUE + 2520, pid=B, lapses=1),
    ]
    verdict = judge(SUCCEEDED, *events)
    assert verdict.sound
    assert verdict.twice == {"killed": 1}
    assert (verdict.kills, verdict.recoveries) == (1, [2500])
    assert verdict.longest_delay == 0


def test_a_kill_before_the_outcome_was_recorded_explains_a_run_but_hit_no_handler() -> None:
    events = [
        *run("r1", DUE, DUE + 5),
        killed(DUE + 5 + SETTLED_WITHIN),
        *run("r2", DUE + 3000, DUE + 3005, pid=B, lapses=1),
    ]
    verdict = judge(SUCCEEDED, *events)
    assert verdict.sound
    assert verdict.twice == {"killed before it was settled": 1}
    assert (verdict.kills, verdict.recoveries) == (1, [])


def test_a_kill_that_hit_nothing_does_not_count() -> None:
    verdict = judge(SUCCEEDED, *run("r1", DUE, DUE + 5), killed(DUE + 9, B))
    assert verdict.sound
    assert (verdict.kills, verdict.recoveries) == (1, [])


def test_a_kill_has_the_recovery_of_its_last_victim() -> None:
    def other(id: str, *events: Event) -> list[Event]:
        return [Made(id=id, due=DUE, attempts=1, at=9_000), *events]

    def started(id: str, at: int, pid: int, lapses: int) -> Started:
        name = f"{id} {pid}"
        return Started(id=id, run=name, attempt=1, lapses=lapses, due=DUE, pid=pid, at=at)

    events: list[Event] = [killed(DUE + 10)]
    events += other("x", started("x", DUE, A, 0), started("x", DUE + 900, B, 1))
    events += other("y", started("y", DUE, A, 0), started("y", DUE + 800, B, 1))
    events += other("z", started("z", DUE, A, 0))
    verdict = check(events, dict.fromkeys("xyz", task(State.RUNNING)), lease=LEASE)
    assert verdict.recoveries == [890]
    assert [fault.id for fault in verdict.lost] == ["x", "y", "z"]


def test_a_lapse_that_no_run_shows_is_explained_by_a_kill_in_its_time() -> None:
    """The listener was killed between its claim and the handler's first statement."""
    verdict = judge(SUCCEEDED, killed(DUE + 1), *run("r1", DUE + 2500, DUE + 2505, pid=B, lapses=1))
    assert verdict.sound
    assert not verdict.twice
    twice = [
        *run("r1", DUE), killed(DUE + 5), killed(DUE + 2500, B),
        *run("r3", DUE + 5000, DUE + 5005, pid=C, lapses=2),
    ]  # fmt: skip
    assert judge(SUCCEEDED, *twice).sound


def test_a_stop_longer_than_the_lease_explains_a_run_beside_the_first() -> None:
    events = [
        *run("r1", DUE, DUE + 4000),
        Stopped(pid=A, at=DUE + 1, until=DUE + 3900),
        *run("r2", DUE + 2500, DUE + 2510, pid=B, lapses=1),
    ]
    verdict = judge(SUCCEEDED, *events)
    assert verdict.sound
    assert verdict.twice == {"stopped": 1}
    assert (verdict.kills, verdict.recoveries) == (0, [])


OVERSLEPT = Stopped(pid=A, at=DUE + 1, until=DUE + 2600)


@pytest.mark.parametrize("heir_at", [DUE + 2500, DUE + 2700], ids=["first", "second"])
def test_a_listener_that_wakes_up_may_begin_what_it_has_lost(heir_at: int) -> None:
    events = [
        OVERSLEPT,
        *run("late", DUE + 2610, DUE + 2620),
        *run("heir", heir_at, heir_at + 5, pid=B, lapses=1),
    ]
    verdict = judge(SUCCEEDED, *events)
    assert verdict.sound
    assert verdict.twice.total() == 1


@pytest.mark.parametrize(
    ("stop", "late"),
    [
        pytest.param(replace(OVERSLEPT, pid=C), DUE + 2610, id="another was stopped"),
        pytest.param(OVERSLEPT, DUE + 2601 + STARTED_WITHIN, id="long after it woke up"),
        pytest.param(replace(OVERSLEPT, at=DUE - 1), DUE + 2610, id="due after the stop"),
    ],
)
def test_a_late_start_of_a_listener_that_did_not_just_wake_up_is_unexplained(
    stop: Stopped, late: int
) -> None:
    heir = run("heir", DUE + 2500, DUE + 2505, pid=B, lapses=1)
    again = judge(SUCCEEDED, stop, killed(DUE + 1, C), *heir, *run("late", late, late))
    assert only_unexplained(again) == "run late has no reason"


def test_a_listener_cut_off_for_longer_than_the_lease_explains_a_run() -> None:
    events = [
        *run("r1", DUE, DUE + 1000),
        CutOff(pid=A, at=DUE + 500, until=DUE + 3900),
        *run("r2", DUE + 2600, DUE + 2610, pid=B, lapses=1),
    ]
    verdict = judge(SUCCEEDED, *events)
    assert verdict.sound
    assert verdict.twice == {"cut off": 1}


def test_while_the_server_is_down_no_outcome_is_recorded() -> None:
    """The listener waited to record it, and was killed a moment after the server's return."""
    down = Down(at=DUE + 100, until=DUE + 3000)
    late = down.until + SETTLED_WITHIN
    again = run("r2", late + 2000, late + 2005, pid=B, lapses=1)
    first = run("r1", DUE, DUE + 50)
    verdict = judge(SUCCEEDED, *first, down, killed(late), *again)
    assert verdict.sound
    assert verdict.twice == {"killed before it was settled": 1}
    for events in ([*first, killed(late), *again], [*first, down, killed(late + 1), *again]):
        assert only_unexplained(judge(SUCCEEDED, *events)) == "run r2 has no reason"


def test_three_lapses_that_were_all_caused_explain_a_failure() -> None:
    events = [
        *run("r1", DUE), killed(DUE + 5),
        *run("r2", DUE + 3000, lapses=1, pid=B), killed(DUE + 3005, B),
        *run("r3", DUE + 6000, lapses=2, pid=C), killed(DUE + 6005, C),
    ]  # fmt: skip
    verdict = judge(task(State.FAILED, lapses=3, error="3 listeners died"), *events)
    assert verdict.sound
    assert verdict.twice == {"killed": 2}
    assert verdict.recoveries == [2995, 2995, None]


def test_what_the_server_was_made_to_forget_is_no_loss() -> None:
    verdict = judge(None, Forgot(at=MADE.at, until=MADE.at + 10))
    assert verdict.sound
    assert (verdict.acknowledged, verdict.forgotten) == (1, 1)


@pytest.mark.parametrize("forgot", [
    Forgot(at=MADE.at + 1, until=MADE.at + 10), Forgot(at=MADE.at - 10, until=MADE.at - 1),
])  # fmt: skip
def test_what_was_made_before_or_after_is_lost(forgot: Forgot) -> None:
    assert only_lost(judge(None, forgot)) == "there is no such task"


def test_an_outcome_that_the_server_forgot_explains_a_run_as_of_old() -> None:
    events = [
        *run("r1", DUE, DUE + 5, "raised"),
        *run("r2", DUE + 200, DUE + 205, attempt=2),
        Forgot(at=DUE + 205 + SETTLED_WITHIN, until=DUE + 1500),
        *run("r3", DUE + 1500, DUE + 1505, lapses=1),
    ]
    verdict = judge(SUCCEEDED, *events)
    assert verdict.sound
    assert verdict.twice == {"retry": 1, FORGOT: 1}


def test_a_claim_that_the_server_forgot_may_start_a_moment_afterwards() -> None:
    forgot = Forgot(at=DUE - 10, until=DUE)
    events = [*run("r1", DUE + STARTED_WITHIN), *run("r2", LATER, LATER + 5)]
    assert judge(SUCCEEDED, forgot, *events).twice == {FORGOT: 1}
    late = [*run("r1", DUE + STARTED_WITHIN + 1), *run("r2", LATER, LATER + 5)]
    assert only_unexplained(judge(SUCCEEDED, forgot, *late)) == "run r2 has no reason"


def test_what_was_never_acknowledged_is_not_judged() -> None:
    events = [*run("r1", DUE - 5), *run("r2", DUE - 5), cancelled(DUE)]
    assert check(events, {}, lease=LEASE) == Verdict()


def test_the_order_of_the_lines_does_not_matter() -> None:
    """Each process has a file of its own, and those are read one after the other."""
    first, second = run("r1", DUE), run("r2", DUE + 2500, DUE + 2505, pid=B, lapses=1)
    verdict = judge(SUCCEEDED, *second, *first, killed(DUE + 10))
    assert verdict.sound
    assert (verdict.twice, verdict.longest_delay) == ({"killed": 1}, 0)


@pytest.mark.parametrize("runs", [
    run("r2", DUE + 9, DUE + 9),
    [*run("r1", DUE, DUE + 1, "raised"), *run("r2", DUE + 9, DUE + 9, attempt=2, due=DUE + 7)],
    [killed(DUE + 1), *run("r1", DUE), *run("r2", DUE + 9, DUE + 9, lapses=1, pid=B)],
])  # fmt: skip
def test_a_run_that_was_claimed_when_it_was_cancelled_may_start_afterwards(
    runs: list[Event],
) -> None:
    assert judge(SUCCEEDED, *runs, cancelled(DUE + 8, "running")).sound


def test_a_task_that_was_put_off_is_late_from_its_last_due_time() -> None:
    events = [put_off(DUE - 60, DUE + 900), put_off(DUE - 50, DUE + 100)]
    verdict = judge(SUCCEEDED, *events, *run("r1", DUE + 107, DUE + 109))
    assert verdict.sound
    assert verdict.longest_delay == 7


@pytest.mark.parametrize("answered", [DUE + 3, DUE + 9], ids=["during", "before"])
def test_being_put_off_while_it_ran_explains_one_run_more(answered: int) -> None:
    """The handler's first statement may follow on the answer."""
    events = [*run("r1", DUE + 3, DUE + 15), put_off(answered, DUE + 90, running=True)]
    events += run("r2", DUE + 91, DUE + 95, due=DUE + 90)
    verdict = judge(SUCCEEDED, *events)
    assert verdict.sound
    assert verdict.twice == {"put off": 1}
    again = judge(SUCCEEDED, *events, *run("r3", DUE + 99, DUE + 99))
    assert only_unexplained(again) == "run r3 has no reason"


def test_the_longest_delay_is_that_of_any_task() -> None:
    made = [
        Made(id=f"t{n}", due=DUE - delay, attempts=1, at=0) for n, delay in enumerate((1, 7, 4))
    ]
    starts = [
        Started(id=event.id, run=event.id, attempt=1, lapses=0, due=event.due, pid=A, at=DUE)
        for event in made
    ]
    found = dict.fromkeys((event.id for event in made), SUCCEEDED)
    assert check([*made, *starts], found, lease=LEASE).longest_delay == 7


# What is wrong: the outcome


def test_a_task_that_is_gone_is_lost() -> None:
    assert only_lost(judge(None, *run("r1", DUE, DUE + 5))) == "there is no such task"


@pytest.mark.parametrize("state", [State.PENDING, State.PAUSED, State.RUNNING])
def test_a_task_that_still_waits_is_lost(state: State) -> None:
    assert only_lost(judge(task(state))) == f"it is still {state}"


def test_a_task_that_still_runs_is_lost_even_if_it_may_wait() -> None:
    verdict = judge(task(State.RUNNING), *run("r1", DUE), may_wait=True)
    assert only_lost(verdict) == "it is still running"


@pytest.mark.parametrize("runs", [
    [], run("r1", DUE), run("r1", DUE, DUE + 5, "raised"), run("r1", DUE, DUE + 5, "cancelled"),
])  # fmt: skip
def test_success_without_a_run_that_returned_is_lost(runs: list[Event]) -> None:
    assert only_lost(judge(SUCCEEDED, *runs)) == "it succeeded, but no run of it returned"


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        pytest.param([], {"error": RAISED}, id="it never ran"),
        pytest.param(
            [*run("r1", DUE, DUE + 5, "raised"), *run("r2", DUE + 9, DUE + 10, attempt=2)],
            {"error": RAISED, "attempt": 2},
            id="it returned",
        ),
        pytest.param(run("r1", DUE), {"error": RAISED}, id="it did not end"),
        pytest.param(
            run("r1", DUE, DUE + 5, "raised"), {"error": RAISED}, id="one attempt was left"
        ),
        pytest.param(
            [
                *run("r1", DUE, DUE + 5, "raised"),
                *run("r2", DUE + 9, DUE + 10, "raised", attempt=2),
            ],
            {"error": "something else", "attempt": 2},
            id="it raised something else",
        ),
        pytest.param(
            run("r1", DUE, DUE + 5, "raised"), {"error": RAISED, "attempt": 2}, id="one did not run"
        ),
        pytest.param(
            [
                *run("r1", DUE, DUE + 5, "raised"),
                *run("r2", DUE + 9, DUE + 10, "raised", attempt=2),
            ],
            {"error": RAISED},
            id="one is not counted",
        ),
        pytest.param([*run("r1", DUE), killed(DUE + 5)], {"lapses": 3}, id="one lapse was caused"),
        pytest.param(
            [*run("r1", DUE), killed(DUE - 9, 1), killed(DUE - 8, 2), killed(DUE + 5)],
            {"lapses": 3},
            id="two kills came before it was due",
        ),
        pytest.param(
            [*run("r1", DUE), killed(DUE + 5, 1), killed(DUE + 6, 2), killed(DUE + 7, 3)],
            {"lapses": 3},
            id="its own listener was not killed",
        ),
        pytest.param(
            [*run("r1", DUE), killed(DUE + 5), killed(DUE + 6, 2), killed(DUE + 7, 3)],
            {"lapses": 2},
            id="it lapsed twice only",
        ),
    ],
)
def test_a_failure_without_a_reason_is_lost(runs: list[Event], found: dict[str, object]) -> None:
    verdict = judge(task(State.FAILED, **found), *runs)  # type: ignore[arg-type]
    assert only_lost(verdict).startswith("it failed, without a reason in the history")


def test_a_cancellation_that_nobody_asked_for_is_lost() -> None:
    assert only_lost(judge(task(State.CANCELLED))) == "it is cancelled, but nobody asked for that"


def test_a_cancellation_that_was_acknowledged_and_not_kept_is_lost() -> None:
    verdict = judge(SUCCEEDED, *run("r1", DUE, DUE + 1), cancelled(DUE + 5))
    assert only_lost(verdict) == "it is succeeded although its cancellation was acknowledged"


# What is wrong: the runs


def test_a_start_a_millisecond_before_the_due_time_is_early() -> None:
    verdict = judge(SUCCEEDED, *run("r1", DUE - 1, DUE + 5, due=DUE - 9))
    assert (verdict.lost, verdict.unexplained, verdict.sound) == ([], [], False)
    [fault] = verdict.early
    assert fault.what == "started 1 ms before it was due"


@pytest.mark.parametrize(
    ("forgot", "due", "early"),
    [
        (Forgot(at=8_000, until=8_900), 8_400, []),
        (Forgot(at=8_000, until=8_900), 8_501, ["started 1 ms before it was due"]),
        (Forgot(at=8_501, until=8_900), 8_400, ["started 1500 ms before it was due"]),
        (Forgot(at=8_000, until=8_499), 8_400, ["started 1500 ms before it was due"]),
    ],
)
def test_what_a_server_forgot_before_its_producer_was_answered_was_due_by_the_first_call(
    forgot: Forgot, due: int, early: list[str]
) -> None:
    """The producer's call was sent again, and made the task anew."""
    events = [forgot, *run("r1", 8_500, 8_505, due=due), *run("r2", DUE, DUE + 5)]
    assert [fault.what for fault in judge(SUCCEEDED, *events).early] == early


def test_a_start_at_the_time_from_which_a_task_was_put_off_is_early() -> None:
    events = [put_off(DUE - 50, DUE + 100), *run("r1", DUE + 1, DUE + 5)]
    [fault] = judge(SUCCEEDED, *events).early
    assert fault.what == "started 99 ms before it was due"
    assert events[0] in fault.lines


def test_a_task_that_was_put_off_while_it_ran_does_not_start_before_that_time() -> None:
    events = [*run("r1", DUE, DUE + 5), put_off(DUE + 3, DUE + 90, running=True)]
    [fault] = judge(SUCCEEDED, *events, *run("r2", DUE + 80, DUE + 85, due=DUE + 80)).early
    assert fault.what == "started 10 ms before it was due"


def test_a_retry_before_its_own_time_is_early() -> None:
    events = [
        *run("r1", DUE, DUE + 5, "raised"),
        *run("r2", DUE + 300, DUE + 305, attempt=2, due=DUE + 302),
    ]
    [fault] = judge(task(State.SUCCEEDED, attempt=2), *events).early
    assert fault.what == "started 2 ms before it was due"


R1 = run("r1", DUE, DUE + 5)
LATER = DUE + 4000


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*R1, *run("r2", LATER, LATER)], id="again for nothing"),
        pytest.param([*run("r1", DUE, LATER + 5), *run("r2", LATER, LATER)], id="beside the first"),
        pytest.param([*R1, *run("r2", LATER, LATER, attempt=2)], id="a retry of what had returned"),
        pytest.param(
            [*run("r1", DUE, LATER + 5, "raised"), *run("r2", LATER, LATER, attempt=2)],
            id="a retry before the end",
        ),
        pytest.param(
            [*run("r1", DUE, DUE + 5, "raised"), *run("r2", LATER, LATER)],
            id="a retry that counted no attempt",
        ),
        pytest.param(
            [*run("r1", DUE), *run("r2", LATER, LATER, pid=B, lapses=1)], id="a lapse uncaused"
        ),
        pytest.param(
            [*run("r1", DUE), killed(DUE + 5, B), *run("r2", LATER, LATER, pid=B, lapses=1)],
            id="another listener was killed",
        ),
        pytest.param(
            [
                *run("r1", DUE),
                killed(LATER + 5),
                killed(DUE + 5, C),
                *run("r2", LATER, LATER, pid=B, lapses=1),
            ],
            id="the kill came afterwards",
        ),
        pytest.param(
            [*run("r1", DUE), killed(DUE + 5), *run("r2", LATER, LATER, pid=B)],
            id="a kill, and no lapse in the record",
        ),
        pytest.param(
            [*run("r1", DUE), killed(DUE + 5), *run("r2", LATER, LATER, pid=B, lapses=2)],
            id="more lapses than kills",
        ),
        pytest.param(
            [*run("r1", DUE), killed(DUE + 5), *run("r2", LATER, LATER, attempt=2, lapses=1)],
            id="a lapse that used an attempt",
        ),
        pytest.param(
            [
                *R1,
                killed(DUE + 6 + SETTLED_WITHIN),
                *run("r2", LATER, LATER, pid=B, lapses=1),
            ],
            id="a kill long after the end",
        ),
        pytest.param(
            [
                *run("r1", DUE, LATER + 5),
                Stopped(pid=A, at=DUE + 1, until=DUE + 2000),
                *run("r2", LATER, LATER, pid=B, lapses=1),
            ],
            id="a stop shorter than the lease",
        ),
        pytest.param(
            [
                Stopped(pid=A, at=DUE - 3000, until=DUE - 1),
                *run("r1", DUE, LATER + 5),
                killed(DUE + 5, C),
                *run("r2", LATER, LATER, pid=B, lapses=1),
            ],
            id="a stop that was over before",
        ),
        pytest.param(
            [
                *run("r1", DUE, DUE + 4000, "raised"),
                Stopped(pid=A, at=DUE + 1, until=DUE + 3900),
                *run("r2", DUE + 2500, DUE + 2510, pid=B, lapses=1),
                *run("r3", DUE + 4200, DUE + 4210, pid=B, attempt=2),
            ],
            id="a retry by a listener that had lost the task",
        ),
        pytest.param(
            [
                *R1,
                Forgot(at=DUE + 6 + SETTLED_WITHIN, until=LATER),
                *run("r2", LATER, LATER),
            ],
            id="an outcome recorded before what the server forgot",
        ),
        pytest.param(
            [*R1, put_off(DUE - 1, DUE, running=True), *run("r2", LATER, LATER)],
            id="put off before the run",
        ),
        pytest.param(
            [*R1, put_off(DUE + 1, LATER), *run("r2", LATER, LATER)],
            id="put off while it waited",
        ),
        pytest.param(
            [*R1, put_off(DUE + 1, LATER, running=True), *run("r2", LATER, LATER, attempt=2)],
            id="put off, but not with fresh attempts",
        ),
        pytest.param(
            [*R1, Forgot(at=DUE, until=LATER + 1), *run("r2", LATER, LATER)],
            id="a run before the server forgot",
        ),
        pytest.param(
            [*R1, Forgot(at=DUE, until=LATER), *run("r2", LATER, LATER, attempt=2)],
            id="a higher attempt after the server forgot",
        ),
    ],
)
def test_a_further_run_without_a_reason_is_unexplained(events: list[Event]) -> None:
    last = [event for event in events if isinstance(event, Started)][-1]
    assert only_unexplained(judge(SUCCEEDED, *events)) == f"run {last.run} has no reason"


@pytest.mark.parametrize("runs", [
    run("r1", DUE, DUE + 5, attempt=2),
    run("r1", DUE, DUE + 5, lapses=1),
    [killed(DUE - 9, C), *run("r1", DUE, DUE + 5, lapses=1)],
    [*run("r1", DUE, DUE + 5, lapses=1), killed(DUE + 2, C)],
])  # fmt: skip
def test_a_first_run_that_follows_on_something_unseen_is_unexplained(runs: list[Event]) -> None:
    verdict = judge(SUCCEEDED, *runs)
    assert only_unexplained(verdict) == "run r1 has no reason"
    assert not verdict.twice


@pytest.mark.parametrize(
    ("answer", "due", "after"),
    [
        pytest.param("cancelled", DUE + 5, 1, id="it was pending"),
        pytest.param("running", DUE, 1, id="a retry that was due before the first run's end"),
        pytest.param("running", DUE + 7, 1, id="a retry that was due afterwards"),
        pytest.param("running", DUE + 5, STARTED_WITHIN + 1, id="long afterwards"),
    ],
)
def test_a_run_after_its_cancellation_is_unexplained(answer: str, due: int, after: int) -> None:
    start = DUE + 6 + after
    events = [*run("r1", DUE, DUE + 5, "raised"), cancelled(DUE + 6, answer)]
    events += run("r2", start, start + 1, attempt=2, due=due)
    assert only_unexplained(judge(task(State.CANCELLED), *events)) == "run r2 has no reason"


# Histories that cannot be


def test_a_history_that_contradicts_itself_is_refused() -> None:
    for events in (
        [MADE],
        run("r1", DUE, DUE + 5)[1:],
        [*run("r1", DUE, DUE + 5), run("r1", DUE, DUE + 6)[1]],
    ):
        with pytest.raises(ValueError, match=r"made twice|never started|ended twice"):
            judge(SUCCEEDED, *events)


def test_many_tasks_are_counted_and_few_are_shown() -> None:
    made = [Made(id=f"t{n}", due=DUE, attempts=1, at=9_000) for n in range(50)]
    verdict = check(made, {event.id: None for event in made}, lease=LEASE)
    assert (verdict.acknowledged, len(verdict.lost), verdict.states) == (50, 50, Counter())
    assert str(verdict).count("there is no such task") == 10
    assert str(verdict).startswith("50 acknowledged: none finished\n50 LOST\n  t0: there is no")
