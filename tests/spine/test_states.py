"""Every cell of the table in docs/reference/states.md: operations and raw edits in each state."""

import asyncio
import time
from collections.abc import Callable

import pytest
import redis

from expirebridge import AsyncBridge, Change, Outcome, State, Task
from expirebridge.bridge import Operations
from expirebridge.hooks import Hooks, Started
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from expirebridge.task.calls.call import Command, When
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.producing import Obstacle
from expirebridge.task.calls.reconciling import EventKind
from tests.kit.patience import PATIENCE
from tests.kit.states import CALL, HOUR, KEY, bring, hear, watch
from tests.kit.steps import age, claim, new, server_ms, settle, state_of
from tests.kit.witness import Witness, listening

MINUTE = HOUR // 60

pytestmark = pytest.mark.servers("ends")

OPERATIONS = Operations(Settings(), Hooks())
FINISHED = ("succeeded", "failed", "cancelled")
UNFINISHED = ("pending", "paused", "running")


def task_of(store: Store) -> Task | None:
    return store.run(looking.get("a"))


def left(task: Task, client: redis.Redis) -> float:
    """Seconds until it is due, by the server's clock."""
    seconds, micros = client.time()
    return task.due.timestamp() - seconds - micros / 1e6


def make(store: Store, if_exists: str, *, call: bytes = CALL) -> producing.MakeReply:
    return store.run(producing.make([new("a", HOUR, call=call, if_exists=if_exists)]))[0]


@pytest.mark.parametrize("state", ["absent", *FINISHED])
@pytest.mark.parametrize("if_exists", ["reject", "keep", "replace", "extend"])
def test_make_creates_where_nothing_is_unfinished(
    store: Store, client: redis.Redis, state: str, if_exists: str
) -> None:
    bring(store, client, state)
    assert make(store, if_exists, call=b"f.g?[2]").outcome is Outcome.CREATED
    task = task_of(store)
    assert task is not None
    assert (task.state, task.func, task.attempt, task.error, task.tags) == (
        State.PENDING, "f.g", 0, None, ()
    )  # fmt: skip
    assert client.exists("expirebridge:tag:t") == 0


@pytest.mark.parametrize("state", UNFINISHED)
@pytest.mark.parametrize(
    ("if_exists", "outcome"), [("reject", Outcome.REJECTED), ("keep", Outcome.KEPT)]
)
def test_make_refuses_or_keeps_an_unfinished_task(
    store: Store, client: redis.Redis, state: str, if_exists: str, outcome: Outcome
) -> None:
    bring(store, client, state)
    before = (client.hgetall("expirebridge:task:a"), client.pttl(KEY) > 0)
    made = make(store, if_exists, call=b"f.g?[2]")
    assert (made.outcome, made.state, made.call) == (outcome, state, CALL)
    assert (client.hgetall("expirebridge:task:a"), client.pttl(KEY) > 0) == before


def keep_within(store: Store, window: int) -> producing.MakeReply:
    """Make task `a` unless one has that id, or began to run in the last so many ms."""
    throttled = new("a", HOUR, call=b"f.g?[2]", if_exists="keep", fields={"window": window})
    return store.run(producing.make([throttled]))[0]


@pytest.mark.parametrize("state", ["absent", *UNFINISHED])
def test_a_window_changes_nothing_for_what_is_not_finished(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    expected = Outcome.CREATED if state == "absent" else Outcome.KEPT
    assert keep_within(store, 1).outcome is expected
    assert b"window" not in client.hgetall("expirebridge:task:a")


@pytest.mark.parametrize("state", FINISHED)
def test_what_began_to_run_within_the_window_is_kept(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    age_start(client, 50_000)
    before = client.hgetall("expirebridge:task:a")
    made = keep_within(store, 60_000)
    assert (made.outcome, made.state, made.call) == (Outcome.KEPT, state, CALL)
    assert client.hgetall("expirebridge:task:a") == before
    assert client.exists("a:?f.g?[2]", KEY) == 0
    age_start(client, 10_000)
    made = keep_within(store, 60_000)
    assert (made.outcome, made.state, made.call) == (Outcome.CREATED, State.PENDING, b"f.g?[2]")


def test_what_was_cancelled_before_it_ran_is_not_kept(store: Store) -> None:
    store.run(producing.make([new("a", HOUR)]))
    store.run(producing.cancel(["a"], keep=3600))
    assert keep_within(store, 60_000).outcome is Outcome.CREATED


def age_start(client: redis.Redis, ms: int) -> None:
    """Let the latest run of task `a` have begun that much earlier."""
    client.hincrby("expirebridge:task:a", "started", -ms)


@pytest.mark.parametrize("state", ["pending", "paused"])
@pytest.mark.parametrize("call", [CALL, b"f.g?[2]"])
def test_replace_puts_a_new_generation_in_place_of_a_waiting_one(
    store: Store, client: redis.Redis, state: str, call: bytes
) -> None:
    bring(store, client, state)
    made = make(store, "replace", call=call)
    assert made.outcome is Outcome.REPLACED
    task = task_of(store)
    assert task is not None
    assert (task.state, task.key, task.attempt, task.tags) == (State.PENDING, b"a:?" + call, 0, ())
    assert client.exists(KEY) == (call == CALL)
    assert client.ttl(task.key) > 3500
    assert client.exists("expirebridge:tag:t") == 0


@pytest.mark.parametrize(
    "outcome", ["succeeded", "failed", "retry", "snoozed", "released", "lapse"]
)
def test_replace_of_a_running_task_follows_its_run_whatever_that_brings(
    store: Store, client: redis.Redis, outcome: str
) -> None:
    bring(store, client, "running")
    made = make(store, "replace", call=b"f.g?[2]")
    assert (made.outcome, made.state) == (Outcome.REPLACED, State.RUNNING)
    end_run(store, client, outcome)
    task = task_of(store)
    assert task is not None
    assert (task.state, task.func, task.args, task.attempt) == (State.PENDING, "f.g", [2], 0)
    assert left(task, client) > 3500
    assert client.exists(b"a:?f.g?[2]") == 1


@pytest.mark.parametrize("how", ["reschedule", "extend"])
def test_what_replaces_a_running_task_can_be_put_off(
    store: Store, client: redis.Redis, how: str
) -> None:
    bring(store, client, "running")
    store.run(producing.make([new("a", 60_000, call=b"f.g?[2]", if_exists="replace")]))
    if how == "extend":
        assert make(store, "extend").obstacle is Obstacle.DIFFERS
        assert make(store, "extend", call=b"f.g?[2]").outcome is Outcome.EXTENDED
    else:
        store.run(producing.reschedule("a", When(HOUR, True)))
    settle(store, Settlement("a", "t", "succeeded"))
    task = task_of(store)
    assert task is not None
    assert (task.state, task.func) == (State.PENDING, "f.g")
    assert left(task, client) > 3500


def test_what_replaces_a_running_task_with_the_same_call_has_its_timer_at_once(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "running")
    store.run(producing.make([new("a", 60_000, call=CALL, if_exists="replace")]))
    assert client.expire(KEY, 3600) == 1
    settle(store, Settlement("a", "t", "succeeded"))
    task = task_of(store)
    assert task is not None
    assert task.tags == ()
    assert left(task, client) > 3500


def test_a_resent_replace_is_known_even_after_the_replacement_ran(store: Store) -> None:
    store.run(producing.make([new("a")]))
    claim(store, "t")
    replace = producing.make([new("a", call=b"f.g?[2]", if_exists="replace")])
    assert store.run(replace)[0].outcome is Outcome.REPLACED
    settle(store, Settlement("a", "t", "succeeded"))
    claim(store, "u")
    settle(store, Settlement("a", "u", "succeeded"))
    assert store.run(replace)[0].outcome is Outcome.REPLACED
    assert store.run(looking.count(10)).pending == 0


def end_run(store: Store, client: redis.Redis, outcome: str) -> None:
    if outcome == "lapse":
        store.run(claiming.heartbeat("another", 10, [], code="c0de"))
        age(client, "running", "a", 1)
        store.run(reconciling.sweep(Settings()))
    else:
        settle(store, Settlement("a", "t", outcome, 60, "x"))


@pytest.mark.parametrize("state", ["pending", "paused"])
def test_extend_moves_the_due_time_and_nothing_else(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    made = make(store, "extend")
    assert made.outcome is Outcome.EXTENDED
    task = task_of(store)
    assert task is not None
    assert (task.state, task.attempt, task.tags) == (State.PENDING, 1, ("t",))
    assert 3000 < left(task, client) < 3601


@pytest.mark.parametrize("state", UNFINISHED)
def test_extend_refuses_another_call(store: Store, client: redis.Redis, state: str) -> None:
    bring(store, client, state)
    made = make(store, "extend", call=b"mail.send?[2]")
    assert (made.outcome, made.obstacle, made.call) == (Outcome.REJECTED, Obstacle.DIFFERS, CALL)


REARMING: dict[str, Callable[[Store, redis.Redis], object]] = {
    "beat": lambda store, _: store.run(producing.beat("a")),
    "extend": lambda store, _: make(store, "extend"),
    "reschedule": lambda store, _: store.run(producing.reschedule("a", When(HOUR, True))),
    "raw SET": lambda _, client: client.set(KEY, "", px=HOUR),
}


@pytest.mark.parametrize(
    "outcome", ["succeeded", "failed", "retry", "snoozed", "released", "lapse"]
)
@pytest.mark.parametrize("how", REARMING)
def test_a_running_task_that_is_wanted_again_waits_for_that_time(
    store: Store, client: redis.Redis, how: str, outcome: str
) -> None:
    bring(store, client, "running")
    REARMING[how](store, client)
    end_run(store, client, outcome)
    task = task_of(store)
    assert task is not None
    assert (task.state, task.attempt, task.lapses, task.tags) == (State.PENDING, 0, 0, ("t",))
    assert 3000 < left(task, client) < 3601


CHANGES: dict[str, Callable[[Store], Change]] = {
    "beat": lambda store: store.run(producing.beat("a")),
    "cancel": lambda store: store.run(producing.cancel(["a"], keep=3600))[0],
    "reschedule": lambda store: store.run(producing.reschedule("a", When(HOUR, True))),
    "put off": lambda store: store.run(producing.put_off(["a"], 3600))[0],
    "run_now": lambda store: store.run(producing.run_now("a")),
    "pause": lambda store: store.run(producing.pause(["a"]))[0],
    "resume": lambda store: store.run(producing.resume(["a"]))[0],
    "edit": lambda store: store.run(OPERATIONS.edit("a", [2])),
}
MISSING, OVER, BUSY = Change.NOT_FOUND, Change.FINISHED, Change.RUNNING
# operation: absent, pending, paused, running, finished; with the state that follows
TABLE = {
    "beat": (
        (MISSING, None), (Change.MOVED, "pending"), (Change.MOVED, "pending"),
        (Change.REARMED, "running"), (OVER, ""),
    ),
    "cancel": (
        (MISSING, None), (Change.CANCELLED, "cancelled"), (Change.CANCELLED, "cancelled"),
        (BUSY, "running"), (OVER, ""),
    ),
    "reschedule": (
        (MISSING, None), (Change.MOVED, "pending"), (Change.MOVED, "pending"),
        (Change.REARMED, "running"), (OVER, ""),
    ),
    "put off": (
        (MISSING, None), (Change.MOVED, "pending"), (Change.MOVED, "paused"),
        (BUSY, "running"), (OVER, ""),
    ),
    "run_now": (
        (MISSING, None), (Change.DUE_NOW, "pending"), (Change.DUE_NOW, "pending"),
        (BUSY, "running"), (Change.DUE_NOW, "pending"),
    ),
    "pause": (
        (MISSING, None), (Change.PAUSED, "paused"), (Change.PAUSED, "paused"),
        (BUSY, "running"), (OVER, ""),
    ),
    "resume": (
        (MISSING, None), (Change.RESUMED, "pending"), (Change.RESUMED, "pending"),
        (BUSY, "running"), (OVER, ""),
    ),
    "edit": (
        (MISSING, None), (Change.EDITED_UNCHECKED, "pending"), (Change.EDITED_UNCHECKED, "paused"),
        (BUSY, "running"), (OVER, ""),
    ),
}  # fmt: skip
COLUMNS = (("absent",), ("pending",), ("paused",), ("running",), FINISHED)
CELLS = [
    (operation, state, *cells[column])
    for operation, cells in TABLE.items()
    for column, states in enumerate(COLUMNS)
    for state in states
    if (operation, state) != ("edit", "failed")
]
CELLS.append(("edit", "failed", Change.EDITED_UNCHECKED, "failed"))


@pytest.mark.parametrize(("operation", "state", "change", "after"), CELLS)
def test_each_change_in_each_state(
    store: Store,
    client: redis.Redis,
    operation: str,
    state: str,
    change: Change,
    after: str | None,
) -> None:
    bring(store, client, state)
    assert CHANGES[operation](store) is change
    task = task_of(store)
    assert (task.state if task else None) == (state if after == "" else after)
    if task is not None:
        check_invariant(client, task)


def check_invariant(client: redis.Redis, task: Task) -> None:
    """The id stands in the one set that its record names; a waiting task has the right timer."""
    sets = [state for state in State if client.zscore(f"expirebridge:{state}", task.id) is not None]
    assert sets == [task.state]
    ttl = client.pttl(task.key)
    match task.state:
        case State.PENDING:
            assert ttl > 0 or left(task, client) <= 0
        case State.PAUSED:
            assert ttl == -1
        case State.SUCCEEDED | State.FAILED | State.CANCELLED:
            assert ttl == -2


def put_off_by_an_hour(store: Store, client: redis.Redis) -> float:
    """Seconds until the task is due."""
    assert store.run(producing.put_off(["a"], 3600)) == [Change.MOVED]
    task = task_of(store)
    assert task is not None
    check_invariant(client, task)
    return left(task, client)


@pytest.mark.parametrize("edited", ["", "put off", "paused", "overdue"])
def test_a_task_is_put_off_from_when_it_is_due_now(
    store: Store, client: redis.Redis, edited: str
) -> None:
    """Another client may have edited its timer, and nobody heard."""
    store.run(producing.make([new("a", HOUR)]))
    due_in = 7200
    match edited:
        case "put off":
            client.pexpire(KEY, 2 * HOUR)
            due_in = 10_800
        case "paused":
            client.persist(KEY)
        case "overdue":
            client.delete(KEY)
            age(client, "pending", "a", 60)
            due_in = 3540
    assert due_in - 50 < put_off_by_an_hour(store, client) < due_in + 1
    assert state_of(store, "a") is (State.PAUSED if edited == "paused" else State.PENDING)


@pytest.mark.parametrize("edited", ["", "resumed", "due"])
def test_a_paused_task_that_is_put_off_has_more_time_left(
    store: Store, client: redis.Redis, edited: str
) -> None:
    store.run(producing.make([new("a", HOUR)]))
    store.run(producing.pause(["a"]))
    due_in = 7200
    match edited:
        case "resumed":
            client.pexpire(KEY, 2 * HOUR)
            due_in = 10_800
        case "due":
            client.delete(KEY)
            due_in = 3600
    assert due_in - 50 < put_off_by_an_hour(store, client) < due_in + 1
    assert state_of(store, "a") is (State.PENDING if edited else State.PAUSED)


def put_off(
    store: Store, if_exists: str, ms: int, max_wait: int, *, call: bytes = CALL
) -> producing.MakeReply:
    limited = new("a", ms, if_exists=if_exists, call=call, fields={"max_wait": max_wait})
    return store.run(producing.make([limited]))[0]


def age_first(client: redis.Redis, ms: int) -> None:
    """Let the putting off of a task have begun that much earlier."""
    client.hincrby("expirebridge:task:a", "first", -ms)


@pytest.mark.parametrize("if_exists", ["extend", "replace"])
def test_a_task_is_put_off_again_and_again_but_no_further_than_its_limit(
    store: Store, client: redis.Redis, if_exists: str
) -> None:
    made = put_off(store, if_exists, 60_000, 90_000)
    assert (made.outcome, made.due - made.now) == (Outcome.CREATED, 60_000)
    age_first(client, 20_000)
    made = put_off(store, if_exists, 60_000, 90_000)
    assert made.outcome is (Outcome.EXTENDED if if_exists == "extend" else Outcome.REPLACED)
    assert made.due - made.now == 60_000
    age_first(client, 20_000)
    made = put_off(store, if_exists, 60_000, 90_000)
    assert made.due == int(client.hget("expirebridge:task:a", "first") or 0) + 90_000
    assert client.pttl(KEY) <= made.due - made.now <= 50_000
    age_first(client, 60_000)
    made = put_off(store, if_exists, 60_000, 90_000)
    assert made.due < made.now
    assert [task.id for task in claim(store).tasks] == ["a"]


def test_a_limit_begins_with_the_call_that_names_it_and_anew_after_a_run(
    store: Store, client: redis.Redis
) -> None:
    assert make(store, "reject").outcome is Outcome.CREATED
    assert b"first" not in client.hgetall("expirebridge:task:a")
    assert put_off(store, "extend", HOUR, HOUR).outcome is Outcome.EXTENDED
    age_first(client, 10 * HOUR)
    store.run(producing.run_now("a"))
    claim(store)
    for waits in (HOUR, HOUR - 10 * MINUTE):  # while it runs: put off as one that begins now
        made = put_off(store, "extend", HOUR, HOUR)
        assert waits - 5 * MINUTE < made.due - made.now <= waits + 1
        age_first(client, 10 * MINUTE)
        client.hincrby("expirebridge:task:a", "started", -10 * MINUTE)
    settle(store, Settlement("a", "t", "succeeded"))
    made = put_off(store, "extend", HOUR, HOUR)
    assert HOUR - 25 * MINUTE < made.due - made.now <= HOUR - 20 * MINUTE + 1


@pytest.mark.parametrize("limited", [True, False])
def test_what_replaces_a_running_task_has_a_limit_of_its_own(
    store: Store, client: redis.Redis, limited: bool
) -> None:
    put_off(store, "extend", 0, HOUR)
    age_first(client, 10 * HOUR)
    claim(store)
    other = b"mail.send?[2]"
    if not limited:
        make(store, "replace", call=other)
    first = put_off(store, "replace" if limited else "extend", HOUR, HOUR, call=other)
    assert HOUR - 5 * MINUTE < first.due - first.now <= HOUR + 1
    for if_exists in ("extend", "replace"):
        time.sleep(0.01)
        again = put_off(store, if_exists, HOUR, HOUR, call=other)
        assert again.due <= first.due + 1
    settle(store, Settlement("a", "t", "succeeded"))
    assert put_off(store, "extend", HOUR, HOUR, call=other).due <= first.due + 1


@pytest.mark.parametrize("again", ["raw SET", "run_now"])
def test_a_task_that_starts_anew_has_no_limit_from_before(
    store: Store, client: redis.Redis, again: str
) -> None:
    put_off(store, "extend", 0, HOUR)
    age_first(client, 10 * HOUR)
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    if again == "raw SET":
        client.set(KEY, "", px=HOUR)
        hear(store, EventKind.LIVE)
    else:
        store.run(producing.run_now("a"))
    made = put_off(store, "extend", HOUR, HOUR)
    assert made.outcome is Outcome.EXTENDED
    assert HOUR - 5 * MINUTE < made.due - made.now <= HOUR + 1


@pytest.mark.parametrize("state", ["absent", "pending", "paused", "running", "failed"])
def test_a_watched_task_is_put_off_by_its_own_time_whatever_state_it_was_in(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    outcome = watch(store, 2 * HOUR)
    assert outcome is (Outcome.EXTENDED if state in UNFINISHED else Outcome.CREATED)
    end_run(store, client, "succeeded")
    store.run(producing.reschedule("a", When(9 * HOUR, relative=True)))
    assert store.run(producing.beat("a")) is Change.MOVED
    task = task_of(store)
    assert task is not None
    assert task.state is State.PENDING
    assert 7000 < left(task, client) < 7201  # sooner than it was
    assert client.zscore("expirebridge:pending", "a") == pytest.approx(
        server_ms(client) + 2 * HOUR, abs=10_000
    )


def test_what_replaces_a_running_task_has_its_own_time(store: Store, client: redis.Redis) -> None:
    bring(store, client, "running")
    make(store, "replace")
    assert store.run(producing.beat("a")) is Change.NOT_WATCHED
    watch(store, HOUR)
    watch(store, 2 * HOUR)
    assert store.run(producing.beat("a")) is Change.REARMED
    settle(store, Settlement("a", "t", "succeeded"))
    assert store.run(producing.beat("a")) is Change.MOVED
    task = task_of(store)
    assert task is not None
    assert 7000 < left(task, client) < 7201


def test_a_beat_for_a_task_that_is_not_watched_says_so(store: Store, client: redis.Redis) -> None:
    make(store, "reject")
    before = client.hgetall("expirebridge:task:a")
    assert store.run(producing.beat("a")) is Change.NOT_WATCHED
    assert client.hgetall("expirebridge:task:a") == before


def test_beats_of_a_waiting_task_leave_its_record_alone(store: Store, client: redis.Redis) -> None:
    watch(store, HOUR)
    before = client.hgetall("expirebridge:task:a"), client.zscore("expirebridge:pending", "a")
    client.pexpire(KEY, 1000)
    assert store.run(producing.beat("a")) is Change.MOVED
    assert client.pttl(KEY) > HOUR - 10_000
    after = client.hgetall("expirebridge:task:a"), client.zscore("expirebridge:pending", "a")
    assert after == before


def test_run_now_gives_a_finished_task_fresh_attempts(store: Store, client: redis.Redis) -> None:
    bring(store, client, "failed")
    store.run(producing.run_now("a"))
    [again] = claim(store, "u").tasks
    assert (again.attempt, again.shown["tags"], again.retry) == (1, ("t",), b"[60]")


def test_pause_keeps_the_time_that_is_left_and_resume_gives_it_back(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", HOUR)]))
    store.run(producing.pause(["a"]))
    assert client.pttl(KEY) == -1
    age(client, "paused", "a", 1)
    store.run(reconciling.sweep(Settings()))  # looks at it, and lets it be
    store.run(producing.resume(["a"]))
    task = task_of(store)
    assert task is not None
    assert 3000 < left(task, client) < 3601
    assert client.pttl(KEY) > 3_590_000


@pytest.mark.parametrize(
    "outcome", ["succeeded", "failed", "retry", "snoozed", "released", "unknown"]
)
def test_of_a_task_cancelled_while_it_ran_no_further_attempt_is_made(
    store: Store, client: redis.Redis, outcome: str
) -> None:
    bring(store, client, "running")
    store.run(producing.reschedule("a", When(HOUR, True)))  # undone by the cancel
    CHANGES["cancel"](store)
    beat = store.run(claiming.heartbeat("l", 10, [("a", "t")], code="c0de"))
    assert (beat.lost, beat.cancelled) == ([], [("a", "t")])
    settle(store, Settlement("a", "t", outcome, 1, "x"))
    task = task_of(store)
    assert task is not None
    assert task.state == (outcome if outcome in FINISHED else "cancelled")
    check_invariant(client, task)


def test_a_lapse_of_a_cancelled_task_cancels_it(store: Store, client: redis.Redis) -> None:
    bring(store, client, "running")
    CHANGES["cancel"](store)
    end_run(store, client, "lapse")
    task = task_of(store)
    assert task is not None
    assert task.state is State.CANCELLED


# Raw edits that were heard


@pytest.mark.parametrize("state", ["pending", "paused"])
def test_a_deletion_that_is_heard_cancels_a_waiting_task(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    client.delete(KEY)
    hear(store, EventKind.DELETED)
    task = task_of(store)
    assert task is not None
    assert (task.state, task.error) == (State.CANCELLED, "its key was deleted")


@pytest.mark.parametrize("state", ["absent", "running", *FINISHED])
def test_a_deletion_changes_nothing_else(store: Store, client: redis.Redis, state: str) -> None:
    bring(store, client, state)
    before = task_of(store)
    hear(store, EventKind.DELETED)
    assert task_of(store) == before


def test_a_deletion_of_a_task_that_is_due_or_was_set_again_changes_nothing(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "pending")
    hear(store, EventKind.DELETED)  # an old event: the key lives
    assert claim(store, "u").tasks == []
    client.delete(KEY)
    age(client, "pending", "a", 1)
    hear(store, EventKind.DELETED)
    assert [task.id for task in claim(store, "u").tasks] == ["a"]


@pytest.mark.parametrize("state", ["pending", "paused"])
def test_an_end_that_came_before_anybody_looked_makes_the_task_due(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    client.delete(KEY)  # as PEXPIRE 1 and its expiry would
    hear(store, EventKind.EXPIRED)
    assert [task.id for task in claim(store, "u").tasks] == ["a"]


@pytest.mark.parametrize("state", FINISHED)
def test_a_finished_task_s_key_set_again_starts_it_anew(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    client.set(KEY, "", px=HOUR)
    hear(store, EventKind.LIVE)
    task = task_of(store)
    assert task is not None
    assert (task.state, task.attempt, task.error, task.tags) == (State.PENDING, 0, None, ("t",))
    check_invariant(client, task)


# Through a listener


async def test_an_async_handler_of_a_cancelled_task_is_cancelled_soon(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def endless() -> None:
        await asyncio.Event().wait()

    async with listening(settings, witness, endless=endless):
        task = await async_bridge.make_task("test.endless", [], 0)
        await witness.until(lambda: witness.seen(Started))
        assert await async_bridge.cancel(task.id) is Change.RUNNING
        await witness.until_ended()  # well before the next regular heartbeat, and no lease ran out
    read = await async_bridge.get(task.id)
    assert read is not None
    assert (read.state, read.error) == (State.CANCELLED, "it was cancelled")


async def test_a_deletion_by_any_client_cancels_while_a_listener_hears(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        task = await async_bridge.make_task("test.note", [], 3600)
        client.delete(task.key)
        async with asyncio.timeout(PATIENCE):
            while not (await async_bridge.count()).cancelled:
                pass


# Resends


@pytest.mark.parametrize("operation", ["cancel", "put off", "reschedule", "run_now"])
def test_a_resend_of_a_change_is_answered_as_the_first_time(
    store: Store, client: redis.Redis, operation: str
) -> None:
    bring(store, client, "pending")
    call: Command[object]
    match operation:
        case "cancel":
            call = producing.cancel(["a"], keep=60)  # type: ignore[assignment]
        case "put off":
            call = producing.put_off(["a"], 60)  # type: ignore[assignment]
        case "reschedule":
            call = producing.reschedule("a", When(HOUR, True))  # type: ignore[assignment]
        case _:
            call = producing.run_now("a")  # type: ignore[assignment]
    first = store.run(call)
    if operation == "run_now":
        claim(store, "u")
        settle(store, Settlement("a", "u", "succeeded"))
    after = task_of(store)
    assert store.run(call) == first
    assert task_of(store) == after


@pytest.mark.parametrize("if_exists", ["replace", "extend"])
@pytest.mark.parametrize("state", UNFINISHED)
def test_a_resend_of_a_make_that_changed_a_task_is_answered_as_the_first_time(
    store: Store, client: redis.Redis, state: str, if_exists: str
) -> None:
    bring(store, client, state)
    call = producing.make([new("a", HOUR, if_exists=if_exists)])
    first = store.run(call)[0].outcome
    after = client.hgetall("expirebridge:task:a")
    assert store.run(call)[0].outcome is first
    assert client.hgetall("expirebridge:task:a") == after
