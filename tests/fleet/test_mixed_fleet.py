"""A fleet that runs more than one code: each listener takes what it knows."""

from collections.abc import Iterable
from typing import Any

import pytest
import redis

from expirebridge import State
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet, inspection, looking, producing
from expirebridge.task.calls.call import new_nonce
from expirebridge.task.calls.claiming import Claim, Refusal, Settled, Settlement, Walk
from expirebridge.task.missing_ability import MissingAbility
from tests.kit.patience import PATIENCE
from tests.kit.steps import age, beat_without_code, new, server_ms

pytestmark = pytest.mark.servers("oldest")

LEASE = 10.0
WHOLE = (Walk(b"-inf", b"", b"+inf"),)
OLD, NEW = {"mail.send": "(to)"}, {"mail.send": "(to, subject)", "orders.rate": "(order)"}
SEND, RATE, LOST = b'mail.send?["ann"]', b"orders.rate?[17]", b"lost.func?[]"
DAY = 86_400_000


def join(store: Store, code: str, shapes: dict[str, str], listener: str = "") -> None:
    store.run(fleet.declare(code.partition(" ")[0], shapes))
    beat = claiming.heartbeat(listener or f"of {code}", LEASE, [], code=code, functions=len(shapes))
    assert not store.run(beat).undeclared


def make(store: Store, call: bytes, *ids: str, ms: int = -1000) -> None:
    """Make tasks that are due since then, in this order."""
    now = server_ms(store.client)
    tasks = [new(id, now + ms + n, call=call, relative=False) for n, id in enumerate(ids)]
    store.run(producing.make(tasks))


def claim(
    store: Store,
    code: str,
    walks: Iterable[Walk] = WHOLE,
    *,
    places: int = 100,
    token: str = "",
    idle: bool = True,
) -> Claim:
    call = claiming.claim_known(
        token or new_nonce(), Settings(), places=places, idle=idle, code=code, walks=walks
    )
    return store.run(call)


def ids_of(claim: Claim) -> list[str]:
    return [task.id for task in claim.tasks]


def fields_of(client: redis.Redis, id: str) -> Any:
    return client.hgetall(f"expirebridge:task:{id}")


def words_of(client: redis.Redis) -> set[bytes]:
    """What code the fleet runs."""
    code: Any = client.hget("expirebridge:meta", "code")
    return set(code.split())


def due_of(client: redis.Redis, id: str) -> int:
    return int(client.zscore("expirebridge:pending", id) or 0)


@pytest.fixture
def mixed(store: Store) -> Store:
    """The store of a fleet of which one listener runs older code, `aa`, and one newer, `bb`."""
    join(store, "aa", OLD)
    join(store, "bb", NEW)
    return store


# Which claim suits the fleet


def test_a_claim_takes_nothing_once_the_fleet_runs_more_than_one_code(mixed: Store) -> None:
    make(mixed, SEND, "a")
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint="aa")
    answer = mixed.run(plain)
    assert (answer.refusal, answer.tasks) == (Refusal.OTHER_CLAIM, [])
    answer = claim(mixed, "aa")
    assert (answer.refusal, ids_of(answer), answer.fleet) == (None, ["a"], b"aa bb")


def test_a_claim_that_looks_for_what_it_knows_is_not_for_a_fleet_of_one_code(store: Store) -> None:
    join(store, "aa", OLD)
    make(store, SEND, "a")
    answer = claim(store, "aa")
    assert (answer.refusal, answer.tasks) == (Refusal.OTHER_CLAIM, [])
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint="aa")
    assert ids_of(store.run(plain)) == ["a"]


def test_a_resent_claim_finds_its_own_whatever_the_fleet_runs_by_now(store: Store) -> None:
    join(store, "aa", OLD)
    make(store, SEND, "a")
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint="aa")
    store.run(plain)
    join(store, "bb", NEW)
    answer = store.run(claiming.resent(plain))
    assert (answer.refusal, ids_of(answer)) == (None, ["a"])
    make(store, RATE, "b")
    known = claiming.claim_known("u", Settings(), places=9, idle=True, code="bb", walks=WHOLE)
    store.run(known)
    store.run(claiming.leave("of aa"))
    join(store, "bb", NEW)
    answer = store.run(claiming.resent(known))
    assert (answer.refusal, ids_of(answer), answer.walked) == (None, ["b"], [])


@pytest.mark.parametrize("garbage", ["what? no", "zz", "", " ", "aa cc", "bb"])
def test_a_code_in_meta_that_another_client_wrote_loses_nothing(
    mixed: Store, client: redis.Redis, garbage: str
) -> None:
    client.hset("expirebridge:meta", "code", garbage)
    make(mixed, SEND, "a")
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint="aa")
    answer = mixed.run(plain)
    if answer.refusal is Refusal.OTHER_CLAIM:
        answer = claim(mixed, "aa")
    assert ids_of(answer) == ["a"]


# Whose a task is


def test_each_takes_what_it_knows_and_leaves_the_rest_in_its_place(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, RATE, "r1", "r2")
    make(mixed, SEND, "s1", ms=-900)
    places = client.zrange("expirebridge:pending", 0, 1, withscores=True)
    records = [fields_of(client, id) for id in ("r1", "r2")]
    answer = claim(mixed, "aa")
    assert (ids_of(answer), answer.walked[0].left) == (["s1"], 2)
    assert client.zrange("expirebridge:pending", 0, -1, withscores=True) == places
    assert [fields_of(client, id) for id in ("r1", "r2")] == records
    assert ids_of(claim(mixed, "bb")) == ["r1", "r2"]


def test_what_nobody_knows_waits_in_its_place_with_its_reason_and_since_when(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, LOST, "a")
    due = due_of(client, "a")
    assert claim(mixed, "aa").tasks == []
    first = fields_of(client, "a")
    assert first[b"error"] == b"no listener knows the function lost.func; waits for one, for a day"
    assert server_ms(client) - int(first[b"unknown"]) < 1000
    assert claim(mixed, "bb").tasks == []
    assert fields_of(client, "a") == first
    assert due_of(client, "a") == due
    found = mixed.run(inspection.find_unhandled(15, limit=9))
    assert found.tasks == [("lost.func", MissingAbility.FUNCTION)]


def test_what_nobody_has_known_for_a_day_is_claimed_to_be_failed_by_who_really_knows(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, LOST, "a")
    client.hset("expirebridge:task:a", "unknown", server_ms(client) - DAY)
    assert ids_of(claim(mixed, "aa", token="t")) == ["a"]
    unknown = Settlement("a", "t", "unknown", 15, "nobody")
    assert mixed.run(claiming.settle([unknown], Settings(), fingerprint="aa")) == [Settled.DONE]
    task = mixed.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.error) == (State.FAILED, "nobody")


def test_whoever_comes_to_know_it_takes_it_at_once(mixed: Store, client: redis.Redis) -> None:
    make(mixed, LOST, "a")
    claim(mixed, "aa")
    join(mixed, "cc", {"lost.func": "()"})
    assert claim(mixed, "aa").tasks == []
    assert not {b"unknown", b"error"} & set(fields_of(client, "a")), "the day is over"
    assert ids_of(claim(mixed, "cc")) == ["a"]


def test_an_unknown_task_that_was_put_off_is_due_when_its_timer_says(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, LOST, "a", ms=3_600_000)
    age(client, "pending", "a", 1)
    claim(mixed, "aa")
    assert due_of(client, "a") > server_ms(client) + 3_000_000
    assert b"unknown" not in fields_of(client, "a")


def test_the_listener_that_died_last_takes_its_knowledge_along(mixed: Store) -> None:
    make(mixed, RATE, "a")
    assert claim(mixed, "aa").tasks == []
    mixed.run(claiming.leave("of bb"))
    join(mixed, "aa", OLD)
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint="aa")
    assert ids_of(mixed.run(plain)) == ["a"], "it gets its reason as before"


def test_older_listeners_beside_one_code_change_nothing(store: Store) -> None:
    beat_without_code(store, "older")
    join(store, "aa", OLD)
    make(store, LOST, "a")
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint="aa")
    assert ids_of(store.run(plain)) == ["a"]


def test_a_foreign_record_without_a_function_is_set_aside_as_ever(
    mixed: Store, client: redis.Redis
) -> None:
    now = server_ms(client) - 1000
    client.hset("expirebridge:task:odd", mapping={"call": "?[]"})
    client.set("expirebridge:task:string", "x")
    client.zadd("expirebridge:pending", {"odd": now, "string": now + 1, "gone": now, "b\xff": now})
    make(mixed, SEND, "a")
    answer = claim(mixed, "aa")
    assert "a" in ids_of(answer)
    assert "string" in answer.broken
    assert client.zcard("expirebridge:pending") == 0


# What another client does to the declarations


@pytest.mark.parametrize("value", ["a string", None])
def test_without_its_own_declaration_a_listener_takes_all(
    mixed: Store, client: redis.Redis, value: str | None
) -> None:
    client.delete("expirebridge:code:aa")
    if value:
        client.set("expirebridge:code:aa", value)
    make(mixed, RATE, "r")
    make(mixed, SEND, "s")
    assert sorted(ids_of(claim(mixed, "aa"))) == ["r", "s"]


@pytest.mark.parametrize("value", ["a string", None])
def test_a_broken_declaration_of_others_knows_nothing(
    mixed: Store, client: redis.Redis, value: str | None
) -> None:
    client.delete("expirebridge:code:bb")
    if value:
        client.set("expirebridge:code:bb", value)
    make(mixed, RATE, "r")
    make(mixed, SEND, "s")
    assert ids_of(claim(mixed, "aa")) == ["s"]
    assert b"unknown" in fields_of(client, "r")


def test_the_count_in_a_declaration_is_no_function(mixed: Store, client: redis.Redis) -> None:
    client.hset("expirebridge:task:a", "call", "#?[]")
    client.zadd("expirebridge:pending", {"a": server_ms(client) - 1})
    assert claim(mixed, "aa").tasks == []
    assert b"unknown" in fields_of(client, "a")


def test_a_name_that_another_client_added_bounces_once(mixed: Store, client: redis.Redis) -> None:
    """The next one in whose list it is refuses it, too; then it waits as nobody's."""
    for code in ("aa", "bb"):
        client.hset(f"expirebridge:code:{code}", "lost.func", f"({code})")
    make(mixed, LOST, "a")
    for code in ("aa", "bb"):
        assert ids_of(claim(mixed, code, token=f"to-{code}")) == ["a"]
        unknown = Settlement("a", f"to-{code}", "unknown", 15, "nobody")
        mixed.run(claiming.settle([unknown], Settings(), fingerprint=code))
    assert fields_of(client, "a")[b"unfit"] == b"aa"
    assert due_of(client, "a") > server_ms(client) + 14_000


# Walks


def test_a_walk_goes_on_behind_the_task_that_it_reached_though_all_are_due_at_once(
    mixed: Store, client: redis.Redis
) -> None:
    ids = [f"r{n:04}" for n in range(1200)]
    now = server_ms(client) - 1000
    for start in range(0, len(ids), 400):
        part = [new(id, now, call=RATE, relative=False) for id in ids[start : start + 400]]
        mixed.run(producing.make(part))
    make(mixed, SEND, "s1")
    client.zadd("expirebridge:pending", {"s1": now})
    found, walk, scripts, left = [], WHOLE[0], 0, 0
    while True:
        answer = claim(mixed, "aa", [walk])
        found += ids_of(answer)
        [walked] = answer.walked
        scripts, left = scripts + 1, left + walked.left
        if scripts == 1:  # the task that it reached goes on its way meanwhile
            client.zrem("expirebridge:pending", walked.id)
            ids.remove(walked.id.decode())
        walk = walk._replace(score=walked.score, id=walked.id)
        if walked.finished:
            break
    assert (found, scripts, left) == (["s1"], 5, 1200)
    assert float(walk.score) >= now
    assert walk.id == b""


def test_a_walk_that_has_reached_now_sees_what_becomes_due_later(mixed: Store) -> None:
    make(mixed, RATE, "r")
    [walked] = claim(mixed, "aa").walked
    make(mixed, SEND, "s", ms=0)
    walk = Walk(walked.score, walked.id, b"+inf")
    while not (answer := claim(mixed, "aa", [walk])).tasks:
        pass
    assert (ids_of(answer), answer.walked[0].left) == (["s"], 0)


def test_what_is_not_due_is_not_taken_though_its_timer_is_gone(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, SEND, "a", ms=60_000)
    assert client.delete('a:?mail.send?["ann"]') == 1
    answer = claim(mixed, "aa")
    assert (answer.tasks, answer.walked[0].finished) == ([], True)


def test_a_walk_stops_where_there_is_no_room(mixed: Store) -> None:
    make(mixed, SEND, "s1", "s2", "s3")
    answer = claim(mixed, "aa", places=2)
    assert ids_of(answer) == ["s1", "s2"]
    assert not answer.walked[0].finished
    walk = Walk(answer.walked[0].score, answer.walked[0].id, b"+inf")
    assert ids_of(claim(mixed, "aa", [walk])) == ["s3"]


def test_walks_share_a_claim(mixed: Store, client: redis.Redis) -> None:
    now = server_ms(client)
    for start in range(0, 800, 400):
        part = [
            new(f"r{n}", now - 5000 + n, call=RATE, relative=False)
            for n in range(start, start + 400)
        ]
        mixed.run(producing.make(part))
    make(mixed, SEND, "s", ms=-10)
    walks = [Walk(b"-inf", b"", b"%d" % (now - 100)), Walk(b"%d" % (now - 100), b"", b"+inf")]
    answer = claim(mixed, "aa", walks)
    assert ids_of(answer) == ["s"]
    assert [(each.finished, each.left) for each in answer.walked] == [(False, 125), (True, 0)]


def test_a_task_that_must_run_alone_is_met_again(mixed: Store, client: redis.Redis) -> None:
    make(mixed, RATE, "r")
    make(mixed, SEND, "killer", ms=-500)
    make(mixed, SEND, "s", ms=-100)
    client.hset("expirebridge:task:killer", "lapses", 2)
    busy = claim(mixed, "aa", idle=False)
    assert (busy.alone, busy.tasks, busy.walked[0].finished) == (True, [], False)
    walk = Walk(busy.walked[0].score, busy.walked[0].id, b"+inf")
    alone = claim(mixed, "aa", [walk])
    assert (alone.alone, ids_of(alone)) == (True, ["killer"])


def test_what_is_passed_over_is_told_to_the_fleet_before(store: Store, client: redis.Redis) -> None:
    join(store, "aa", OLD)
    make(store, LOST, "a")
    with client.pubsub() as heard:
        heard.subscribe(f"expirebridge:doorbell:{client.get_connection_kwargs()['db']}")
        heard.get_message(timeout=PATIENCE)
        answer = claim(store, "aa ?")
        message = heard.get_message(timeout=PATIENCE)
    assert message is not None
    assert message["data"] == b"beat"
    assert (answer.refusal, answer.walked[0].left) == (None, 1)
    assert words_of(client) == {b"aa", b"?"}
    join(store, "aa ?", OLD, "of aa")
    assert words_of(client) == {b"aa", b"?"}
    join(store, "aa", OLD)
    assert words_of(client) == {b"aa"}
    assert claim(store, "aa").refusal is Refusal.OTHER_CLAIM


def test_the_next_due_time_is_of_what_is_not_due_yet(mixed: Store, client: redis.Redis) -> None:
    make(mixed, RATE, "overdue")
    assert claim(mixed, "aa").next_due is None
    make(mixed, RATE, "coming", ms=60_000)
    assert claim(mixed, "aa").next_due == due_of(client, "coming")


# Doorbells


def test_what_is_due_is_announced_though_others_stand_in_front(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, RATE, "overdue")
    database = client.get_connection_kwargs()["db"]
    with client.pubsub() as heard:
        heard.subscribe(f"expirebridge:doorbell:{database}")
        heard.get_message(timeout=PATIENCE)
        make(mixed, SEND, "later", ms=60_000)
        make(mixed, SEND, "latest", ms=90_000)
        make(mixed, SEND, "sooner", ms=30_000)
        make(mixed, SEND, "now", ms=0)
        make(mixed, SEND, "past", ms=-500)
        client.publish(f"expirebridge:doorbell:{database}", "end")
        told = []
        while (message := heard.get_message(timeout=PATIENCE)) and message["data"] != b"end":
            told.append(int(message["data"]))
    scores = [due_of(client, id) for id in ("later", "sooner", "now", "past")]
    assert told == scores


def test_what_was_announced_to_nobody_is_announced_when_the_fleet_knows_of_the_stranded(
    store: Store, client: redis.Redis
) -> None:
    """A heartbeat that was sent before the claim says that nothing is stranded, until the next."""
    join(store, "aa", OLD)
    make(store, LOST, "a")
    claim(store, "aa ?")
    join(store, "aa", OLD)
    database = client.get_connection_kwargs()["db"]
    with client.pubsub() as heard:
        heard.subscribe(f"expirebridge:doorbell:{database}")
        heard.get_message(timeout=PATIENCE)
        make(store, SEND, "b", ms=-100)
        join(store, "aa ?", OLD, "of aa")
        client.publish(f"expirebridge:doorbell:{database}", "end")
        told = []
        while (message := heard.get_message(timeout=PATIENCE)) and message["data"] != b"end":
            told.append(message["data"])
    assert told[0] == b"beat"
    assert [int(due) <= due_of(client, "b") for due in told[1:]] == [True]


# Outcomes


def settle(store: Store, id: str, token: str, outcome: str, code: str) -> Settled:
    settlement = Settlement(id, token, outcome, 15, "why")
    [settled] = store.run(claiming.settle([settlement], Settings(), fingerprint=code))
    return settled


def test_what_was_claimed_before_others_were_known_of_is_due_again_at_once(
    store: Store, client: redis.Redis
) -> None:
    join(store, "aa", OLD)
    make(store, RATE, "a")
    due = due_of(client, "a")
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint="aa")
    assert ids_of(store.run(plain)) == ["a"]
    join(store, "bb", NEW)
    assert settle(store, "a", "t", "unknown", "aa") is Settled.LEFT
    assert due_of(client, "a") == due
    [task] = claim(store, "bb").tasks
    assert (task.id, task.attempt, task.due) == ("a", 1, due)
    settle(store, "a", task.token, "succeeded", "bb")
    assert not {b"unfit", b"unknown", b"error"} & set(fields_of(client, "a"))


def test_arguments_that_do_not_fit_wait_for_a_listener_that_knows_another_shape(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, SEND, "a")
    due = due_of(client, "a")
    claim(mixed, "aa", token="t")
    assert settle(mixed, "a", "t", "unfit", "aa") is Settled.LEFT
    assert settle(mixed, "a", "t", "unfit", "aa") is Settled.LEFT, "of a resend"
    fields = fields_of(client, "a")
    assert (fields[b"unfit"], fields[b"error"], fields[b"attempt"]) == (b"aa", b"why", b"0")
    assert due_of(client, "a") == due
    # It is left also by a listener with the same code that was started since.
    assert claim(mixed, "aa").tasks == []
    [task] = claim(mixed, "bb").tasks
    assert (task.id, task.attempt) == ("a", 1)
    # The other refuses it as well: nobody is left.
    assert settle(mixed, "a", task.token, "unfit", "bb") is Settled.DONE
    failed = mixed.run(looking.get("a"))
    assert failed is not None
    assert (failed.state, failed.error, failed.attempt) == (State.FAILED, "why", 1)


@pytest.mark.parametrize("others", [None, {"mail.read": "()"}, OLD])
def test_arguments_that_do_not_fit_fail_at_once_if_nobody_knows_another_shape(
    store: Store, others: dict[str, str] | None
) -> None:
    join(store, "aa", OLD)
    if others:
        join(store, "bb", others)
    make(store, SEND, "a")
    if not claim(store, "aa", token="t").tasks:
        store.run(claiming.claim("t", Settings(), places=1, idle=True, fingerprint="aa"))
    assert settle(store, "a", "t", "unfit", "aa") is Settled.DONE
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.attempt) == (State.FAILED, 1)
    assert sum(span.failed for span in store.run(inspection.read_tally(spans=2, minutes=1))) == 1


def test_it_fails_at_once_when_all_that_could_take_it_are_gone(mixed: Store) -> None:
    make(mixed, SEND, "a")
    claim(mixed, "aa", token="t")
    assert settle(mixed, "a", "t", "unfit", "aa") is Settled.LEFT
    mixed.run(claiming.leave("of bb"))
    join(mixed, "aa", OLD)
    plain = claiming.claim("u", Settings(), places=9, idle=True, fingerprint="aa")
    assert ids_of(mixed.run(plain)) == ["a"]
    assert settle(mixed, "a", "u", "unfit", "aa") is Settled.DONE
    task = mixed.run(looking.get("a"))
    assert task is not None
    assert task.state is State.FAILED


def test_a_task_that_starts_anew_has_been_refused_by_nobody(
    mixed: Store, client: redis.Redis
) -> None:
    make(mixed, SEND, "a")
    for code in ("aa", "bb"):
        claim(mixed, code, token=code)
        settle(mixed, "a", code, "unfit", code)
    mixed.run(producing.run_now("a"))
    assert b"unfit" not in fields_of(client, "a")
    assert ids_of(claim(mixed, "aa")) == ["a"]


@pytest.mark.parametrize("garbage", [b"\xff\x00", b"aa" * 500, b""])
def test_what_another_client_wrote_as_unfit_loses_nothing(
    mixed: Store, client: redis.Redis, garbage: bytes
) -> None:
    make(mixed, SEND, "a")
    client.hset("expirebridge:task:a", "unfit", garbage)
    taken = claim(mixed, "aa", token="t").tasks or claim(mixed, "bb", token="t").tasks
    assert [task.id for task in taken] == ["a"]


def test_a_cancelled_task_does_not_wait_for_others(mixed: Store) -> None:
    make(mixed, SEND, "a")
    claim(mixed, "aa", token="t")
    mixed.run(producing.cancel(["a"], keep=60))
    settle(mixed, "a", "t", "unfit", "aa")
    task = mixed.run(looking.get("a"))
    assert task is not None
    assert task.state is State.CANCELLED
