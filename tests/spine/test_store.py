"""Each script, called as the listener and the producers call it."""

import hashlib
import time
from typing import Any

import pytest
import redis

from expirebridge import Change, Outcome, State
from expirebridge.connection import clients
from expirebridge.errors import NotPermitted, ServerOutOfMemory, ServerUnreachable
from expirebridge.settings import Settings
from expirebridge.store import script_loader
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from expirebridge.task.calls.call import When, command
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.task import to_ms
from tests.kit.cases import each
from tests.kit.logins import login
from tests.kit.lua import NAMES
from tests.kit.patience import PATIENCE
from tests.kit.servers import AnyServer
from tests.kit.steps import (
    PREFIX,
    age,
    claim,
    new,
    reschedule,
    server_ms,
    settle,
    state_of,
)

pytestmark = pytest.mark.servers("ends")


@each("name", NAMES)
def test_each_script_compiles(client: redis.Redis, name: str) -> None:
    """Lua takes 200 local names in a script, and says so when it is first called."""
    script = script_loader.load(name)
    assert client.script_load(script.plain.text) == script.plain.sha


# Making


def test_a_task_is_a_key_with_a_ttl_a_record_and_a_place_in_pending(
    store: Store, client: redis.Redis
) -> None:
    [made] = store.run(producing.make([new("a", 60_000, fields={"tags": "x y"})]))
    assert (made.outcome, made.due - made.now) == (Outcome.CREATED, 60_000)
    assert client.execute_command("PTTL", "a:?mail.send?[1]") > 59_000
    record = client.hgetall("expirebridge:task:a")
    assert record.pop(b"nonce")
    assert record == {b"call": b"mail.send?[1]", b"made": b"%d" % (made.now // 1000),
                      b"tags": b"x y"}  # fmt: skip
    assert client.zscore("expirebridge:pending", "a") == made.due
    assert client.smembers("expirebridge:tag:x") == {b"a"}
    meta = client.hgetall("expirebridge:meta")
    assert int(meta.pop(b"born")) > 0
    assert meta == {b"format": b"1", b"partitions": b"1"}


def test_an_id_that_is_taken_is_rejected_or_kept_and_nothing_changes(
    store: Store, client: redis.Redis
) -> None:
    [first] = store.run(producing.make([new("a", 60_000)]))
    before = client.hgetall("expirebridge:task:a")
    other = new("a", 5, call=b"mail.other?[2]")
    [rejected] = store.run(producing.make([other]))
    [kept] = store.run(producing.make([new("a", 5, call=b"mail.other?[2]", if_exists="keep")]))
    assert (rejected.outcome, kept.outcome) == (Outcome.REJECTED, Outcome.KEPT)
    assert (kept.due, kept.call) == (first.due, b"mail.send?[1]")
    assert client.hgetall("expirebridge:task:a") == before
    assert client.exists("a:?mail.other?[2]") == 0


def test_a_resend_of_make_is_answered_as_the_first_time(store: Store) -> None:
    named = producing.make([new("a", 60_000)])
    drawn = producing.make([new("b", 60_000, has_random_id=True)])
    for call in (named, drawn):
        [first], [again] = store.run(call), store.run(call)
        assert again.outcome is Outcome.CREATED
        # Redis 6.2 tells a timer's end to the millisecond only.
        assert abs(again.due - first.due) <= 1
    assert store.run(looking.count(10)).pending == 2


def test_a_resent_settlement_is_known_although_the_task_was_started_anew(store: Store) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    call = claiming.settle([Settlement("a", "t", "succeeded")], Settings())
    store.run(call)
    store.run(producing.run_now("a"))
    assert store.run(call) == [Settled.DONE]
    assert state_of(store, "a") is State.PENDING


def test_a_resend_of_make_is_no_false_rejection_even_after_the_task_ran(store: Store) -> None:
    call = producing.make([new("a")])
    store.run(call)
    claim(store)
    assert store.run(call)[0].outcome is Outcome.CREATED
    settle(store, Settlement("a", "t", "succeeded"))
    assert store.run(call)[0].outcome is Outcome.CREATED
    assert state_of(store, "a") is State.SUCCEEDED


@pytest.mark.parametrize(
    ("if_exists", "call"), [("replace", b"f.g?@"), ("extend", b"mail.send?[1]")]
)
def test_a_resend_about_a_running_task_is_answered_with_what_will_follow_it(
    store: Store, if_exists: str, call: bytes
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    fields = {"args": "[2]"} if if_exists == "replace" else {}
    make = producing.make([new("a", 60_000, call=call, if_exists=if_exists, fields=fields)])
    [first], [again] = store.run(make), store.run(make)
    assert (first.due - first.now, first.call) == (60_000, call)
    assert again._replace(now=first.now) == first


def test_a_finished_task_makes_way_with_all_that_belonged_to_it(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", fields={"tags": "old"})]))
    claim(store)
    settle(store, Settlement("a", "t", "failed", text="broken"))
    [made] = store.run(producing.make([new("a", 60_000, fields={"tags": "new"})]))
    assert made.outcome is Outcome.CREATED
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.attempt, task.error, task.tags) == (State.PENDING, 0, None, ("new",))
    assert client.exists("expirebridge:tag:old") == 0
    assert client.zcard("expirebridge:failed") == 0


def test_a_due_time_in_the_past_is_due_now_and_needs_no_timer(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", 1_000, relative=False)]))
    assert client.exists("a:?mail.send?[1]") == 0
    assert [task.id for task in claim(store).tasks] == ["a"]


def test_only_a_new_earliest_task_rings_the_doorbell(store: Store, client: redis.Redis) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(store.database.doorbell_channel)
        pubsub.get_message(timeout=PATIENCE)
        dues = [
            store.run(producing.make([new(id, ms)]))[0].due
            for id, ms in (("a", 60_000), ("b", 90_000), ("c", 30_000))
        ]
        client.publish(store.database.doorbell_channel, "end")
        rung = []
        while (message := pubsub.get_message(timeout=PATIENCE)) and message["data"] != b"end":
            rung.append(int(message["data"]))
    assert rung == [dues[0], dues[2]]


def test_without_memory_a_task_is_refused_whole_but_outcomes_are_recorded(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    version = int(client.info("server")["redis_version"].split(".")[0])
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemory, match="nothing was written"):
            store.run(producing.make([new("b", 60_000)]))
        if version >= 7:
            claim(store)
            assert settle(store, Settlement("a", "t", "succeeded")) == [Settled.DONE]
    finally:
        client.config_set("maxmemory", 0)
    assert client.keys("b:[?]*") == []
    assert state_of(store, "b") is None


# Claiming


def test_a_claim_takes_what_is_due_oldest_first_and_leaves_the_rest(store: Store) -> None:
    past = [new(id, 1_000 + n, relative=False) for n, id in enumerate(("a", "b", "c"))]
    [_, _, _, later] = store.run(producing.make([*reversed(past), new("d", 60_000)]))
    first = claim(store, places=2)
    assert [task.id for task in first.tasks] == ["a", "b"]
    assert first.next_due == 1_002
    second = claim(store)
    assert [task.id for task in second.tasks] == ["c"]
    assert second.next_due == later.due
    assert claim(store).tasks == []


def test_a_claim_never_takes_a_task_before_its_millisecond(
    store: Store, client: redis.Redis
) -> None:
    for n in range(20):
        [made] = store.run(producing.make([new(f"a{n}", 3)]))
        while not (taken := claim(store, f"t{n}").tasks):
            pass
        assert int(client.hget("expirebridge:task:" + taken[0].id, "started") or 0) >= made.due


def test_a_put_off_is_followed_at_the_old_due_time(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 60_000)]))
    client.expire("a:?mail.send?[1]", 3600)
    age(client, "pending", "a", 1)
    looked = claim(store)
    assert looked.tasks == []
    assert looked.next_due is not None
    assert looked.next_due - server_ms(client) > 3_500_000
    assert state_of(store, "a") is State.PENDING


def test_a_timer_without_an_end_is_a_pause_and_one_with_an_end_resumes(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", 60_000)]))
    client.persist("a:?mail.send?[1]")
    age(client, "pending", "a", 1)
    assert claim(store).tasks == []
    assert state_of(store, "a") is State.PAUSED
    client.pexpire("a:?mail.send?[1]", 50_000)
    age(client, "paused", "a", 1)
    store.run(reconciling.sweep(Settings()))
    assert state_of(store, "a") is State.PENDING


@pytest.mark.parametrize("end", [2**63 - 8, 2**53 + 1])
def test_a_timer_whose_end_is_beyond_all_times_is_that_of_a_task_all_the_same(
    store: Store, client: redis.Redis, end: int
) -> None:
    store.run(producing.make([new("a", 60_000)]))
    store.run(producing.pause(["a"]))
    client.pexpireat("a:?mail.send?[1]", end)
    assert store.run(producing.resume(["a"])) == [Change.RESUMED]
    assert state_of(store, "a") is State.PENDING
    assert store.run(producing.put_off(["a"], 1)) == [Change.MOVED]
    assert store.run(producing.pause(["a"])) == [Change.PAUSED]
    assert store.run(producing.resume(["a"])) == [Change.RESUMED]
    assert client.pttl("a:?mail.send?[1]") < 2**53
    assert reschedule(store, "a", 0) is Change.MOVED
    assert len(claim(store).tasks) == 1


def test_a_missing_timer_alone_changes_nothing(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 60_000)]))
    client.delete("a:?mail.send?[1]")
    assert claim(store).tasks == []
    age(client, "pending", "a", 1)
    assert len(claim(store).tasks) == 1


def test_a_resent_claim_finds_what_it_took(store: Store) -> None:
    store.run(producing.make([new("a"), new("b"), new("c")]))
    call = claiming.claim("t", Settings(), places=2, idle=True)
    first = store.run(call).tasks
    assert store.run(claiming.resent(call)).tasks == first
    unanswered = claiming.resent(claiming.claim("u", Settings(), places=2, idle=True))
    assert [task.id for task in store.run(unanswered).tasks] == ["c"]


def test_a_claim_is_bounded_in_bytes(store: Store) -> None:
    big = {"args": "[" + "1," * 30_000 + "1]"}
    store.run(producing.make([new(f"a{n}", call=b"f.g?@", fields=big) for n in range(40)]))
    assert 1 < len(claim(store).tasks) < 40


@pytest.mark.parametrize("wrong", ["missing", "text", "without a call"])
def test_a_broken_record_is_put_aside_and_stops_nobody(
    store: Store, client: redis.Redis, wrong: str
) -> None:
    store.run(producing.make([new("a"), new("b")]))
    client.delete("expirebridge:task:a")
    if wrong == "text":
        client.set("expirebridge:task:a", "what")
    elif wrong == "without a call":
        client.hset("expirebridge:task:a", "made", 1)
    looked = claim(store)
    assert looked.broken == ["a"]
    assert [task.id for task in looked.tasks] == ["b"]
    assert claim(store).broken == []
    if wrong == "missing":
        assert state_of(store, "a") is None
    else:
        task = store.run(looking.get("a"))
        assert task is not None
        assert (task.state, "without a call" in str(task.error)) == (State.FAILED, True)


def test_what_was_claimed_can_no_longer_be_put_off(store: Store, client: redis.Redis) -> None:
    """Not even in its due millisecond, in which a key lives on: the answer would be untrue."""
    for n in range(50):
        store.run(producing.make([new(f"a{n}", 3)]))
        while not claim(store).tasks:
            pass
        assert not client.pexpire(f"a{n}:?mail.send?[1]", 60_000)


@pytest.mark.rest
def test_the_time_of_a_timer_is_read_to_the_millisecond(store: Store) -> None:
    """Where a server tells only what is left of it (Redis 6.2), time passes as that is read."""
    store.run(producing.make([new("a", 60_000)]))
    first = store.run(looking.get("a"))
    assert all(store.run(looking.get("a")) == first for _ in range(3_000))


# Settling


@pytest.mark.parametrize(
    "outcome", ["succeeded", "failed", "retry", "snoozed", "released", "unknown"]
)
def test_only_the_holder_of_the_token_settles_and_a_resend_is_answered(
    store: Store, outcome: str
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    assert settle(store, Settlement("a", "other", outcome, 60)) == [Settled.REFUSED]
    assert state_of(store, "a") is State.RUNNING
    assert settle(store, Settlement("a", "t", outcome, 60)) == [Settled.DONE]
    after = store.run(looking.get("a"))
    assert settle(store, Settlement("a", "t", outcome, 60)) == [Settled.DONE]
    assert store.run(looking.get("a")) == after
    assert settle(store, Settlement("nobody", "t", outcome)) == [Settled.REFUSED]


def test_a_retry_waits_with_a_timer_of_its_own_and_counts_its_attempts(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    settle(store, Settlement("a", "t", "retry", 3600, "no answer"))
    assert client.pttl("a:?mail.send?[1]") > 3_000_000
    client.delete("a:?mail.send?[1]")
    age(client, "pending", "a", 1)
    assert claim(store, "u").tasks[0].attempt == 2


def test_a_snooze_waits_counts_itself_and_uses_no_attempt(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    for snoozes in range(3):
        [claimed] = claim(store, f"t{snoozes}").tasks
        assert (claimed.attempt, claimed.shown.get("snoozes", 0)) == (1, snoozes)
        settlement = Settlement("a", f"t{snoozes}", "snoozed", 3600, "a rate limit")
        assert settle(store, settlement) == settle(store, settlement) == [Settled.DONE]
        assert client.pttl("a:?mail.send?[1]") > 3_000_000
        task = store.run(looking.get("a"))
        assert task is not None
        assert (task.attempt, task.snoozes, task.error) == (0, snoozes + 1, "a rate limit")
        client.delete("a:?mail.send?[1]")
        age(client, "pending", "a", 1)
    task = store.run(looking.get("a"))
    assert task is not None
    told = [(entry.what, entry.attempt, entry.times) for entry in task.history]
    assert told == [("created", None, 1), ("snoozed", 1, 3)]


def test_a_snooze_resets_the_lapses_as_a_retry_does(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a")]))
    client.hset("expirebridge:task:a", "lapses", 1)
    claim(store)
    settle(store, Settlement("a", "t", "snoozed", 60))
    assert client.hget("expirebridge:task:a", "lapses") is None


@pytest.mark.parametrize("again", ["run_now", "rearmed"])
def test_what_begins_anew_has_no_snoozes(store: Store, client: redis.Redis, again: str) -> None:
    store.run(producing.make([new("a")]))
    client.hset("expirebridge:task:a", "snoozes", 4)
    claim(store)
    if again == "rearmed":
        store.run(producing.reschedule("a", When(60_000, True)))
        settle(store, Settlement("a", "t", "snoozed", 60))
    else:
        settle(store, Settlement("a", "t", "failed"))
        store.run(producing.run_now("a"))
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.snoozes) == (State.PENDING, 0)


def test_a_broken_number_of_snoozes_is_counted_from_none(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a")]))
    client.hset("expirebridge:task:a", "snoozes", "some")
    [claimed] = claim(store).tasks
    assert claimed.shown == {}
    settle(store, Settlement("a", "t", "snoozed", 60))
    assert client.hget("expirebridge:task:a", "snoozes") == b"1"


def test_a_release_restores_the_attempt_and_the_due_time(store: Store) -> None:
    [made] = store.run(producing.make([new("a")]))
    claim(store)
    settle(store, Settlement("a", "t", "released", text="stopping"))
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.attempt, task.error) == (0, "stopping")
    assert claim(store, "u").tasks[0].due == made.due


@pytest.mark.parametrize(
    "outcome", ["succeeded", "failed", "retry", "snoozed", "released", "unknown"]
)
def test_a_timer_set_while_the_handler_ran_arms_the_task_again(
    store: Store, client: redis.Redis, outcome: str
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    client.set("a:?mail.send?[1]", "", px=60_000)  # a keepalive during "mark offline"
    settlement = Settlement("a", "t", outcome, 1, "x")
    assert settle(store, settlement) == [Settled.DONE]
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.attempt, task.error) == (State.PENDING, 0, None)
    assert claim(store).tasks == []
    assert settle(store, settlement) == [Settled.DONE]


OTHER = "a:?mail.send?[2]"
"""A key with the id of the task `a`, which has another name."""


def run_foreign(store: Store, client: redis.Redis) -> str:
    """Run a task whose key is OTHER, while `a` has another one; returns its id."""
    client.set(OTHER, "", px=60_000)
    heard = reconciling.KeyEvent(
        OTHER.encode(), "a", b"mail.send?[2]", reconciling.EventKind.LIVE
    )  # fmt: skip
    assert store.run(reconciling.adopt([heard], Settings())) == [reconciling.Adoption.ADOPTED]
    id = hashlib.sha1(OTHER.encode(), usedforsecurity=False).hexdigest()
    store.run(producing.run_now(id))
    assert [task.id for task in claim(store).tasks] == [id]
    return id


def test_a_task_that_ends_with_others_sets_no_key_that_one_of_them_took_over(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    claim(store, "u")
    id = run_foreign(store, client)
    changed = new("a", 7_200_000, call=b"mail.send?[2]", if_exists="replace")
    store.run(producing.make([changed]))
    settle(store, Settlement("a", "u", "succeeded"), Settlement(id, "t", "retry", 3600))
    assert client.pttl(OTHER) > 6_000_000
    assert 3_000_000 < client.pttl(f"{id}:?mail.send?[2]") <= 3_600_000


def test_a_task_whose_follow_up_takes_its_key_over_is_not_run_again(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", 60_000)]))
    id = run_foreign(store, client)
    store.run(producing.cancel(["a"], keep=60))
    then = new("a", 60_000, call=b"mail.send?[2]")
    store.run(claiming.settle_then([Settlement(id, "t", "succeeded", then=then)], Settings()))
    assert state_of(store, "a") is State.PENDING
    assert state_of(store, id) is State.SUCCEEDED


# Cancelling and rescheduling


def cancel(store: Store, id: str) -> Change:
    return store.run(producing.cancel([id], keep=3600))[0]


def test_cancel_says_what_it_found(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 60_000), new("b")]))
    call = producing.cancel(["a", "b", "nobody"], keep=3600)
    claim(store)
    expected = [Change.CANCELLED, Change.RUNNING, Change.NOT_FOUND]
    assert store.run(call) == expected
    assert store.run(call) == expected  # a resend
    assert cancel(store, "a") is Change.FINISHED
    assert client.exists("a:?mail.send?[1]") == 0
    assert state_of(store, "a") is State.CANCELLED


def test_a_resent_pause_does_not_undo_what_happened_since(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", 60_000)]))
    pause = producing.pause(["a"])
    assert store.run(pause) == [Change.PAUSED]
    client.expire("a:?mail.send?[1]", 90)
    store.run(reconciling.scan("0", 1000))
    assert store.run(pause) == [Change.PAUSED]
    assert state_of(store, "a") is State.PENDING


def test_a_resent_resume_is_answered_as_the_first_time_even_after_the_task_ran(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", 60_000)]))
    store.run(producing.pause(["a"]))
    client.hset("expirebridge:task:a", "left", 0)
    resume = producing.resume(["a"])
    assert store.run(resume) == [Change.RESUMED]
    claim(store)
    assert store.run(resume) == [Change.RESUMED]
    settle(store, Settlement("a", "t", "succeeded"))
    assert store.run(resume) == [Change.RESUMED]


def test_reschedule_moves_the_due_time_and_the_timer(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 7_200_000), new("b")]))
    assert reschedule(store, "a", 3_600_000) is Change.MOVED
    due = client.zscore("expirebridge:pending", "a") or 0
    assert 0 < due - server_ms(client) <= 3_600_000
    assert client.pttl("a:?mail.send?[1]") <= 3_600_000
    claim(store)
    assert reschedule(store, "b", 60_000) is Change.REARMED
    settle(store, Settlement("b", "t", "succeeded"))
    assert state_of(store, "b") is State.PENDING
    assert reschedule(store, "c", 0) is Change.NOT_FOUND
    # A time that has come leaves no live timer behind, which would hold the task back.
    assert reschedule(store, "a", 0) is Change.MOVED
    assert [task.id for task in claim(store, "u").tasks] == ["a"]


# Looking


def test_listing_pages_through_states_and_tags(store: Store, client: redis.Redis) -> None:
    store.run(
        producing.make([new(f"a{n:02}", 60_000 + n, fields={"tags": "x"}) for n in range(25)])
    )
    store.run(producing.make([new("b", 30_000, call=b"mail.other?[]")]))

    def page(cursor: str = "0", **options: Any) -> looking.TaskPage:
        given: dict[str, Any] = {"state": None, "func": None, "tag": None, "count": 10} | options
        return store.run(looking.list_page(cursor=cursor, **given))

    first = page(state=State.PENDING)
    assert [task.id for task in first.tasks] == ["b"] + [f"a{n:02}" for n in range(9)]
    third = page(page(first.cursor, state=State.PENDING).cursor, state=State.PENDING)
    assert (third.cursor, third.examined) == ("0", 6)
    assert [task.id for task in page(state=State.PENDING, func="mail.other").tasks] == ["b"]
    tagged, cursor = set(), "0"
    while True:
        part = page(cursor, tag="x", func="mail.send")
        tagged |= {task.id for task in part.tasks}
        cursor = part.cursor
        if cursor == "0":
            break
    assert tagged == {f"a{n:02}" for n in range(25)}


def test_what_was_put_off_is_shown_with_its_true_due_time(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", 60_000)]))
    began = time.time()
    client.expire("a:?mail.send?[1]", 3600)
    task = store.run(looking.get("a"))
    assert task is not None
    assert task.due.timestamp() > began + 3_599


# The connection


def test_scripts_survive_a_flush_of_the_server_s_cache(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 60_000)]))
    client.script_flush()
    store.run(producing.make([new("b", 60_000)]))
    assert store.run(looking.count(10)).pending == 2


def test_every_name_carries_the_hash_tag_of_the_prefix(url: str, client: redis.Redis) -> None:
    store = Store(clients.producer_client(url), prefix="{eb:3}expirebridge")
    store.run(producing.make([new("a"), new("b", 60_000)]))
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    store.run(claiming.heartbeat("l", 10, [], code="c0de"))
    names = client.keys()
    assert b"{eb:3}b:?mail.send?[1]" in names
    assert [name for name in names if name[:6] != b"{eb:3}"] == []
    task = store.run(looking.get("b"))
    assert task is not None
    assert task.key == b"{eb:3}b:?mail.send?[1]"
    store.close()


def test_an_unreachable_server_is_named_so() -> None:
    store = Store(clients.heartbeat_client("redis://127.0.0.1:1/1", socket_timeout=1), prefix="e")
    with pytest.raises(ServerUnreachable, match="no answer from the server"):
        store.run(looking.count(10))
    store.close()


# What happens to a task while its handler runs, or while it is paused


def test_a_task_rescheduled_while_it_ran_runs_again_even_if_that_time_came_first(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    assert reschedule(store, "a", 0) is Change.REARMED
    settle(store, Settlement("a", "t", "succeeded"))
    [again] = claim(store, "u").tasks
    assert (again.id, again.attempt) == ("a", 1)
    settle(store, Settlement("a", "u", "succeeded"))
    assert state_of(store, "a") is State.SUCCEEDED


def test_a_timer_that_was_heard_of_while_the_handler_ran_counts_though_it_ended(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a")]))
    claim(store)
    client.set("a:?mail.send?[1]", "", px=60_000)
    heard = reconciling.KeyEvent(
        b"a:?mail.send?[1]", "a", b"mail.send?[1]", reconciling.EventKind.LIVE
    )
    store.run(reconciling.adopt([heard], Settings()))
    client.delete("a:?mail.send?[1]")  # as its expiry would
    client.hset("expirebridge:task:a", "rearm", 1_000)
    settle(store, Settlement("a", "t", "succeeded"))
    assert [task.id for task in claim(store, "u").tasks] == ["a"]


def test_a_paused_task_keeps_the_time_that_was_left(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", 3_600_000)]))
    client.persist("a:?mail.send?[1]")
    heard = reconciling.KeyEvent(
        b"a:?mail.send?[1]", "a", b"mail.send?[1]", reconciling.EventKind.LIVE
    )
    store.run(reconciling.adopt([heard], Settings()))
    task = store.run(looking.get("a"))
    assert task is not None
    assert task.state is State.PAUSED
    assert 3_000_000 < to_ms(task.due) - server_ms(client) <= 3_600_000


@pytest.mark.parametrize("found_by", ["event", "sweep"])
def test_a_paused_task_whose_new_timer_ended_runs(
    store: Store, client: redis.Redis, found_by: str
) -> None:
    store.run(producing.make([new("a", 60_000)]))
    name = b"a:?mail.send?[1]"
    client.persist(name)
    store.run(
        reconciling.adopt(
            [reconciling.KeyEvent(name, "a", b"mail.send?[1]", reconciling.EventKind.LIVE)],
            Settings(),
        )
    )
    assert state_of(store, "a") is State.PAUSED
    client.delete(name)  # as PEXPIRE 1 and its expiry would
    if found_by == "event":
        store.run(
            reconciling.adopt(
                [reconciling.KeyEvent(name, "a", b"mail.send?[1]", reconciling.EventKind.EXPIRED)],
                Settings(),
            )
        )
    else:
        age(client, "paused", "a", 1)
        store.run(reconciling.sweep(Settings()))
    assert [task.id for task in claim(store).tasks] == ["a"]


def test_a_finished_task_s_next_generation_keeps_its_policies(
    store: Store, client: redis.Redis
) -> None:
    fields = {"retry": "[]", "timeout": 5, "tags": "x", "args": "[1]"}
    store.run(producing.make([new("a", call=b"f.g?@", fields=fields)]))
    claim(store)
    settle(store, Settlement("a", "t", "failed", text="x"))
    client.set("a:?f.g?@", "", px=60_000)
    hint = reconciling.KeyEvent(
        b"a:?f.g?@", "a", b"f.g?@", reconciling.EventKind.LIVE, invalid="in no record"
    )
    assert store.run(reconciling.adopt([hint], Settings())) == [reconciling.Adoption.ADOPTED]
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.args, task.tags, task.attempt) == (State.PENDING, [1], ("x",), 0)


def test_a_refused_right_is_told_as_such(server: AnyServer) -> None:
    """It must not be taken for bad data in the database."""
    with login(server, ["~*", "&*", "+@all", "-zadd", "-info"]) as url:
        store = Store(clients.producer_client(url), prefix=PREFIX)
        for refused in (claiming.heartbeat("me", 10, [], code="c0de"), command("INFO")):
            with pytest.raises(NotPermitted, match=r"lacks a right: .*expirebridge acl"):
                store.run(refused)
        store.close()
