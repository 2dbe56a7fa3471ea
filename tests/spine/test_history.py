"""What a task's history says: edits of its due time, and attempts."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import redis

from expirebridge import HistoryEntry
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from expirebridge.task.calls.call import When
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.reconciling import EventKind
from expirebridge.task.task import to_ms
from tests.kit.states import CALL, HOUR, KEY, hear, watch
from tests.kit.steps import age, claim, new, settle

pytestmark = pytest.mark.servers("oldest")

RECORD = "expirebridge:task:a"


def history(store: Store) -> tuple[HistoryEntry, ...]:
    task = store.run(looking.get("a"))
    assert task is not None
    return task.history


def told(store: Store) -> list[str]:
    """What happened, in words."""
    return [entry.what for entry in history(store)]


def moved_by(entry: HistoryEntry) -> float:
    """By how many minutes the due time was moved."""
    assert entry.old_due is not None
    assert entry.new_due is not None
    return round((entry.new_due - entry.old_due) / timedelta(minutes=1))


def make(store: Store, ms: int = HOUR, **fields: Any) -> None:
    store.run(producing.make([new("a", ms, fields=fields)]))


def reschedule(store: Store, ms: int) -> None:
    store.run(producing.reschedule("a", When(ms, relative=True)))


def test_a_task_that_was_only_made_or_ran_once_keeps_no_history(
    store: Store, client: redis.Redis
) -> None:
    make(store, 500)
    hear(store, EventKind.LIVE)  # of its own making
    store.run(reconciling.scan("0", 1000))
    assert told(store) == ["created"]
    while not claim(store).tasks:
        pass
    assert told(store) == ["created", "started"]
    settle(store, Settlement("a", "t", "succeeded"))
    assert told(store) == ["created", "succeeded"]
    last = history(store)[-1]
    assert (last.attempt, last.error) == (1, "")
    assert last.started is not None
    assert client.hexists(RECORD, "history") == 0


def test_each_change_of_the_due_time_is_told_with_both(store: Store, client: redis.Redis) -> None:
    make(store)
    reschedule(store, 2 * HOUR)
    reschedule(store, HOUR)
    store.run(producing.put_off(["a"], 3600))
    client.pexpire(KEY, 3 * HOUR)
    hear(store, EventKind.LIVE)
    store.run(producing.make([new("a", HOUR, if_exists="extend")]))
    store.run(producing.run_now("a"))
    entries = history(store)
    assert [(entry.what, moved_by(entry)) for entry in entries[1:]] == [
        ("reschedule", 60), ("reschedule", -60), ("put_off", 60), ("edit", 60),
        ("extend", -120), ("run_now", -60),
    ]  # fmt: skip
    for before, after in pairwise(entries[1:]):
        assert before.new_due is not None
        assert after.old_due is not None
        assert abs(after.old_due - before.new_due) <= timedelta(milliseconds=1)
        assert before.at <= after.at


def test_pauses_are_told_whoever_made_them(store: Store, client: redis.Redis) -> None:
    make(store)
    store.run(producing.pause(["a"]))
    store.run(producing.put_off(["a"], 3600))
    store.run(producing.resume(["a"]))
    client.persist(KEY)
    hear(store, EventKind.LIVE)
    hear(store, EventKind.LIVE)
    client.pexpire(KEY, HOUR)
    hear(store, EventKind.LIVE)
    entries = history(store)[1:]
    assert [entry.what for entry in entries] == ["pause", "put_off", "resume", "edit", "edit"]
    assert [entry.old_due is None for entry in entries] == [False, True, True, False, True]
    assert [entry.new_due is None for entry in entries] == [True, True, False, True, False]


def test_an_edit_that_nobody_heard_is_told_when_it_is_seen(
    store: Store, client: redis.Redis
) -> None:
    make(store)
    client.pexpire(KEY, 2 * HOUR)
    assert told(store) == ["created"]
    age(client, "pending", "a", 0)
    assert claim(store).tasks == []
    assert told(store) == ["created", "edit"]
    assert moved_by(history(store)[1]) == 120


def test_keepalives_are_one_entry(store: Store, client: redis.Redis) -> None:
    watch(store, HOUR)
    for minutes in range(70, 120, 10):
        client.pexpire(KEY, minutes * 60_000)
        hear(store, EventKind.LIVE)
    [_, beats] = history(store)
    assert (beats.what, beats.times, moved_by(beats)) == ("beat", 5, 50)
    client.pexpire(KEY, HOUR)  # sooner: no sign of life
    hear(store, EventKind.LIVE)
    assert [(entry.what, entry.times) for entry in history(store)[1:]] == [("beat", 5), ("edit", 1)]
    store.run(producing.run_now("a"))
    claim(store)
    for _ in range(3):  # it was not due at any time when it runs
        store.run(producing.beat("a"))
    assert [(entry.what, entry.times) for entry in history(store)[-3:]] == [
        ("run_now", 1), ("started", 1), ("beat", 3)
    ]  # fmt: skip


def test_each_attempt_is_told_with_how_it_ended(store: Store, client: redis.Redis) -> None:
    make(store, 0)
    for number, outcome in enumerate(("retry", "released", "lapse", "retry")):
        claim(store, f"t{number}")
        if outcome == "lapse":
            store.run(claiming.heartbeat("another", 10, [], code="c0de"))
            age(client, "running", "a", 1)
            store.run(reconciling.sweep(Settings()))
        else:
            error = 'Traceback:\n  File "x"\nOSError: ' + "x" * 1000
            settle(store, Settlement("a", f"t{number}", outcome, 0, error))
    claim(store, "last")
    reschedule(store, 0)
    settle(store, Settlement("a", "last", "succeeded"))
    claim(store, "really")
    settle(store, Settlement("a", "really", "failed", text="a\nValueError: no"))
    entries = history(store)
    assert [entry.what for entry in entries] == [
        "created", "retry", "released", "lapsed", "retry", "reschedule", "rearmed", "failed"
    ]  # fmt: skip
    assert [entry.attempt for entry in entries] == [None, 1, 2, 2, 2, None, 3, 1]
    assert entries[1].error == ("OSError: " + "x" * 1000)[:200]
    assert entries[-1].error == "ValueError: no"


@pytest.mark.parametrize("first", ["retry", "rearmed"])
def test_an_attempt_in_the_millisecond_of_the_one_before_is_an_attempt(
    store: Store, client: redis.Redis, first: str
) -> None:
    make(store, 0)
    claim(store, "first")
    if first == "rearmed":
        reschedule(store, 0)
    settle(store, Settlement("a", "first", "retry", 0, "OSError: no"))
    claim(store, "last")
    [before] = [entry.started for entry in history(store) if entry.what == first]
    assert before is not None
    client.hset(RECORD, "started", to_ms(before))
    settle(store, Settlement("a", "last", "failed", text="ValueError: no"))
    last = history(store)[-1]
    assert (last.attempt, last.started) == (2 if first == "retry" else 1, before)


@pytest.mark.parametrize("how", ["run_now", "raw SET"])
def test_a_task_that_starts_anew_tells_of_its_former_end(
    store: Store, client: redis.Redis, how: str
) -> None:
    make(store, 0)
    claim(store)
    settle(store, Settlement("a", "t", "failed", text="ValueError: no"))
    former = history(store)[-1]
    if how == "run_now":
        store.run(producing.run_now("a"))
    else:
        client.set(KEY, "", px=HOUR)
        hear(store, EventKind.LIVE)
    # When the new one was created is known to the second: a second may begin after the former end.
    [created] = [entry for entry in history(store) if entry.what == "created"]
    *first, last = history(store)
    assert first == sorted([created, former], key=lambda entry: entry.at)
    assert last.what == ("run_now" if how == "run_now" else "edit")


def test_a_task_that_was_cancelled_while_it_waited_ended_with_no_attempt(store: Store) -> None:
    make(store, 0)
    claim(store)
    settle(store, Settlement("a", "t", "retry", 60, "no"))
    store.run(producing.cancel(["a"], keep=60))
    assert [(entry.what, entry.attempt) for entry in history(store)] == [
        ("created", None), ("retry", 1), ("cancelled", None)
    ]  # fmt: skip


def test_attempts_without_a_handler_are_one_entry(store: Store) -> None:
    make(store, 0)
    for number in range(3):
        claim(store, f"t{number}")
        settle(store, Settlement("a", f"t{number}", "unknown", 0.001, "nobody"))
        while not (taken := claim(store, f"u{number}").tasks):
            pass
        settle(store, Settlement("a", taken[0].token, "unknown", 0, "nobody"))
    assert [(entry.what, entry.times) for entry in history(store)] == [
        ("created", 1), ("unknown", 6)
    ]  # fmt: skip


def test_no_more_than_twenty_things_are_kept(store: Store, client: redis.Redis) -> None:
    make(store)
    for minutes in range(30):
        reschedule(store, minutes * 60_000 + 60_000)
    entries = history(store)
    assert len(entries) == 21
    assert moved_by(entries[-1]) == 1
    assert len(client.hget(RECORD, "history") or b"") < 1200


def test_a_history_that_cannot_be_read_is_left_out(store: Store, client: redis.Redis) -> None:
    make(store)
    lines = b"\xff\nx y z\n1 edit - x 1\n2 edit 3 4 many\n5 \xff 6 7 8 9\n"
    client.hset(RECORD, "history", lines)
    assert told(store) == ["edit", "\\xff", "created"]
    reschedule(store, HOUR)
    assert told(store)[-1] == "reschedule"


def test_what_replaces_a_task_has_a_history_of_its_own(store: Store) -> None:
    make(store)
    reschedule(store, HOUR)
    store.run(producing.make([new("a", HOUR, call=CALL, if_exists="replace")]))
    assert told(store) == ["created"]
