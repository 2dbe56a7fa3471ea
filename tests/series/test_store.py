"""What the scripts do to series and their ticks, at times that the test chooses."""

import pytest
import redis

from expirebridge import State
from expirebridge.series import calls as series_commands
from expirebridge.series.calls import DeclarationState, Put, Removal, Retimed, Times
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from expirebridge.task.calls.claiming import Settled, Settlement
from tests.kit.patience import PATIENCE
from tests.kit.series import HOUR, LEASE, due_series, follow, put, retime, series, wait_until
from tests.kit.steps import beating, claim, new, server_ms, settle, state_of

pytestmark = pytest.mark.servers("ends")

PREFIX = "expirebridge"


def place_of(client: redis.Redis, id: str = "s") -> int:
    score = client.zscore(f"{PREFIX}:series", id)
    assert score is not None
    return int(score)


def field_of(client: redis.Redis, name: str, id: str = "s") -> bytes | None:
    value = client.hget(f"{PREFIX}:series:{id}", name)
    assert value is None or isinstance(value, bytes)
    return value


def test_a_series_has_its_next_tick_as_an_ordinary_task(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    new = series(tags="nightly", retry="[1]", timeout="3")
    put(store, new, tick, successor=tick + HOUR)
    task = store.run(looking.get(f"s@{tick}"))
    assert task is not None
    assert (task.state, task.func, task.args, task.tags) == (
        State.PENDING, "mail.send", [1], ("nightly",)
    )  # fmt: skip
    assert task.key == f"s@{tick}:?mail.send?[1]".encode()
    assert HOUR - 60_000 < client.pttl(task.key.decode()) <= HOUR
    assert client.hmget(f"{PREFIX}:task:s@{tick}", "tick", "retry", "timeout") == [
        f"{tick} {tick + HOUR}".encode(), b"[1]", b"3"
    ]  # fmt: skip
    assert task.tick is not None
    assert int(task.tick.timestamp() * 1000) == tick
    assert client.sismember(f"{PREFIX}:tag:nightly", f"s@{tick}")
    assert place_of(client) == tick


def test_without_a_series_a_heartbeat_says_so(store: Store) -> None:
    assert store.run(claiming.heartbeat("l", LEASE, [], code="c0de")).next_making is None


def test_a_heartbeat_says_when_the_next_tick_is_to_be_made(
    store: Store, client: redis.Redis
) -> None:
    now = server_ms(client)
    put(store, series("late"), now + 2 * HOUR)
    put(store, series("soon"), now + HOUR)
    assert store.run(claiming.heartbeat("l", LEASE, [], code="c0de")).next_making == now + HOUR


def test_only_an_earlier_series_rings(store: Store, client: redis.Redis) -> None:
    heard = client.pubsub()
    heard.subscribe(f"{PREFIX}:doorbell:{store.database.number}")
    now = server_ms(client)
    for id, ahead in (("a", 2), ("b", 3), ("c", 1)):
        put(store, series(id), now + ahead * HOUR)
    client.publish(f"{PREFIX}:doorbell:{store.database.number}", "end")
    messages: list[bytes] = []
    while not messages or messages[-1] != b"end":
        message = heard.get_message(timeout=PATIENCE)
        assert message is not None
        if message["type"] == "message":
            messages.append(message["data"])
    assert messages.count(b"beat") == 2  # a was the first, and c is earlier
    heard.close()


# The successor


def test_the_successor_is_made_once(store: Store, client: redis.Redis) -> None:
    tick = due_series(store, client)
    found = store.run(series_commands.find_due_series())
    assert [(one.id, one.tick, one.spec) for one in found.series] == [("s", tick, b"every 1h")]
    assert follow(store, "s", tick, tick + HOUR)
    assert not follow(store, "s", tick, tick + HOUR)  # another listener, at the same time
    assert not follow(store, "s", tick, tick + 2 * HOUR)
    assert state_of(store, f"s@{tick + HOUR}") is State.PENDING
    assert state_of(store, f"s@{tick + 2 * HOUR}") is None
    assert store.run(series_commands.find_due_series()).series == []
    assert place_of(client) == tick + HOUR


def test_jitter_puts_off_the_making_of_the_successor_too(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + 500
    put(store, series("late"), tick, jitter=HOUR)
    put(store, series("soon"), tick, jitter=30)
    assert place_of(client, "late") == tick + HOUR
    wait_until(client, tick + 30)
    found = store.run(series_commands.find_due_series())
    assert [(one.id, one.tick) for one in found.series] == [("soon", tick)]
    assert found.following == tick + HOUR
    assert follow(store, "soon", tick, tick + 2 * HOUR)


def test_the_successor_is_made_whatever_became_of_the_tick(
    store: Store, client: redis.Redis
) -> None:
    soon = server_ms(client) + 500
    for id in ("deleted", "moved", "paused", "run"):
        put(store, series(id), soon)
    client.delete(f"deleted@{soon}:?mail.send?[1]")
    client.expire(f"moved@{soon}:?mail.send?[1]", 7200)
    client.persist(f"paused@{soon}:?mail.send?[1]")
    store.run(producing.run_now(f"run@{soon}"))
    claim(store)
    wait_until(client, soon)
    found = store.run(series_commands.find_due_series()).series
    assert {one.id for one in found} == {"deleted", "moved", "paused", "run"}


def test_pages_of_due_series_say_that_there_are_more(store: Store, client: redis.Redis) -> None:
    soon = server_ms(client) + 500
    for id in ("a", "b", "c"):
        put(store, series(id), soon + HOUR)
    put(store, series("later"), soon + 2 * HOUR)
    assert store.run(series_commands.find_due_series()).following == soon + HOUR
    client.zadd(f"{PREFIX}:series", dict.fromkeys(("a", "b", "c"), soon))
    client.zadd(f"{PREFIX}:series", {"later": soon + HOUR})
    wait_until(client, soon)
    found = store.run(series_commands.find_due_series(2))
    assert ([one.id for one in found.series], found.following) == (["a", "b"], soon)
    found = store.run(series_commands.find_due_series(3))
    assert ([one.id for one in found.series], found.following) == (["a", "b", "c"], soon + HOUR)


def test_the_last_tick_leaves_a_series_that_makes_no_more(
    store: Store, client: redis.Redis
) -> None:
    tick = due_series(store, client)
    assert follow(store, "s", tick, None)
    assert store.run(series_commands.find_due_series()).series == []
    assert place_of(client) > server_ms(client) + 1000 * HOUR


def test_a_place_without_a_record_stops_nobody(store: Store, client: redis.Redis) -> None:
    tick = due_series(store, client)
    client.zadd(f"{PREFIX}:series", {"gone": 1, "wrong": 2})
    client.set(f"{PREFIX}:series:wrong", "x")
    assert [one.id for one in store.run(series_commands.find_due_series()).series] == ["s"]
    assert client.zrange(f"{PREFIX}:series", 0, -1) == [b"s"]
    assert tick


# Later time zone data


def outdated(store: Store, version: str, skip: int = 0) -> list[str]:
    return [one.id for one in store.run(series_commands.find_outdated(version, skip))]


def test_only_series_whose_data_are_older_are_found(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    for id, data in (("old", "2025c 0"), ("new", "2026a 0"), ("none", ""), ("unknown", "0 0")):
        put(store, series(id), tick, tzdata=data)
    assert outdated(store, "2025a") == ["unknown"]
    assert outdated(store, "2026a") == ["unknown", "old"]
    assert outdated(store, "2026b") == ["unknown", "old", "new"]
    assert outdated(store, "2026b", 2) == ["new"]
    assert outdated(store, "") == []
    store.run(series_commands.remove_series(["old"], LEASE))
    store.run(series_commands.pause_series("new"))
    assert follow(store, "unknown", tick, None)
    assert outdated(store, "2026z") == []
    client.zadd(f"{PREFIX}:tzdata", {"gone": 1})
    assert outdated(store, "2026z") == []
    assert not client.exists(f"{PREFIX}:tzdata")


def test_later_data_move_the_waiting_tick(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick, successor=tick + 24 * HOUR, tzdata="2026a 3600")
    for older in ("2025c 0", "2026a 0", "0 0"):
        assert retime(store, "s", tick, tick - 1000, tzdata=older) is Retimed.NOT_LATER
    assert retime(store, "s", tick + 1, tick - 1000) is Retimed.STAYS  # computed for another tick
    assert state_of(store, f"s@{tick}") is State.PENDING
    assert retime(store, "s", tick, tick - 1000) is Retimed.MOVED
    assert retime(store, "s", tick, tick - 1000) is Retimed.STAYS
    assert state_of(store, f"s@{tick}") is None
    assert not client.exists(f"s@{tick}:?mail.send?[1]")
    assert state_of(store, f"s@{tick - 1000}") is State.PENDING
    assert place_of(client) == tick - 1000
    assert field_of(client, "tzdata") == b"2026b 0"
    assert outdated(store, "2026b") == []


def test_later_data_that_change_nothing_are_noted(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick, successor=tick + HOUR, tzdata="2026a 0")
    assert retime(store, "s", tick, tick) is Retimed.STAYS
    assert field_of(client, "tzdata") == b"2026b 0"
    assert outdated(store, "2026b") == []
    # The time of the one after it may be another, which decides whether this one was missed.
    assert client.hget(f"{PREFIX}:task:s@{tick}", "tick") == str(tick).encode()


@pytest.mark.parametrize("what", ["moved", "deleted", "paused", "running", "retried"])
def test_what_a_client_or_a_listener_did_to_the_tick_stays(
    store: Store, client: redis.Redis, what: str
) -> None:
    began = what in {"running", "retried"}
    tick = server_ms(client) + (500 if began else HOUR)
    put(store, series(), tick, tzdata="2026a 0")
    key = f"s@{tick}:?mail.send?[1]"
    if began:
        wait_until(client, tick)
        [task] = claim(store).tasks
        if what == "retried":
            settlement = Settlement(task.id, task.token, "retry", delay=60.0)
            store.run(claiming.settle([settlement], Settings()))
    else:
        {"moved": lambda: client.expire(key, 7200), "deleted": lambda: client.delete(key),
         "paused": lambda: client.persist(key)}[what]()  # fmt: skip
    left = client.pttl(key)
    assert retime(store, "s", tick, tick + HOUR) is Retimed.STAYS
    assert state_of(store, f"s@{tick + HOUR}") is None
    assert client.pttl(key) == pytest.approx(left, abs=1000)
    assert place_of(client) == tick
    assert outdated(store, "2026b") == []


# Claims


def test_a_tick_is_claimed_with_the_time_for_which_it_stands(
    store: Store, client: redis.Redis
) -> None:
    tick = due_series(store, client)
    [claimed] = claim(store).tasks
    assert claimed.id == f"s@{tick}"
    assert int(claimed.shown["tick"].timestamp() * 1000) == tick
    settle(store, Settlement(claimed.id, "t", "succeeded"))
    assert field_of(client, "last") == f"s@{tick}".encode()
    assert field_of(client, "outcome") == b"succeeded"
    assert int(field_of(client, "succeeded") or 0) >= tick


def test_a_count_that_another_client_overwrote_stops_no_claim(
    store: Store, client: redis.Redis
) -> None:
    tick = due_series(store, client, successor_in=20)
    client.hset("expirebridge:series:s", "missed", "abc")
    store.run(producing.make([new("plain", call=b"mail.send?[1]")]))
    wait_until(client, tick + 20)
    assert [task.id for task in claim(store).tasks] == ["plain"]
    assert field_of(client, "missed") == b"abc"


def test_a_tick_whose_successor_is_due_was_missed(store: Store, client: redis.Redis) -> None:
    tick = due_series(store, client, successor_in=20)
    wait_until(client, tick + 20)
    assert claim(store).tasks == []
    missed = store.run(looking.get(f"s@{tick}"))
    assert missed is not None
    assert missed.state is State.CANCELLED
    assert missed.error == "missed: the next tick was due"
    assert field_of(client, "missed") == b"1"
    assert field_of(client, "last") is None


def test_a_tick_that_a_client_moved_behind_the_next_one_runs(
    store: Store, client: redis.Redis
) -> None:
    soon = server_ms(client) + 2000
    put(store, series(), soon, successor=server_ms(client) + 40)
    client.pexpire(f"s@{soon}:?mail.send?[1]", 60)
    client.zadd(f"{PREFIX}:pending", {f"s@{soon}": server_ms(client) + 60})
    wait_until(client, server_ms(client) + 80)
    assert [task.id for task in claim(store).tasks] == [f"s@{soon}"]


def test_a_tick_does_not_begin_while_another_runs(store: Store, client: redis.Redis) -> None:
    first = due_series(store, client, successor_in=500)
    [running] = claim(store, "one").tasks
    second = first + 500
    follow(store, "s", first, second, successor=second + HOUR)
    wait_until(client, second)
    assert claim(store, "two").tasks == []
    skipped = store.run(looking.get(f"s@{second}"))
    assert skipped is not None
    assert (skipped.state, skipped.error) == (State.CANCELLED, f"skipped: {running.id} still ran")
    assert field_of(client, "overlapped") == b"1"
    assert settle(store, Settlement(running.id, "one", "succeeded")) == [Settled.DONE]


def test_two_ticks_in_one_claim_do_not_overlap(store: Store, client: redis.Redis) -> None:
    first = due_series(store, client)
    extra = store.run(series_commands.run_series("s"))
    wait_until(client, server_ms(client) + 2)
    assert [task.id for task in claim(store).tasks] == [f"s@{first}"]
    assert extra is not None
    assert state_of(store, extra) is State.CANCELLED


def test_ticks_of_a_series_that_allows_it_overlap(store: Store, client: redis.Redis) -> None:
    first = due_series(store, client, successor_in=500, overlap="allow")
    [running] = claim(store, "one").tasks
    follow(store, "s", first, first + 500, successor=first + HOUR)
    wait_until(client, first + 500)
    [second] = claim(store, "two").tasks
    assert (running.id, second.id) == (f"s@{first}", f"s@{first + 500}")


def test_a_tick_is_not_retried_when_the_next_one_is_due(store: Store, client: redis.Redis) -> None:
    tick = due_series(store, client)
    [claimed] = claim(store).tasks
    late = Settlement(claimed.id, "t", "retry", HOUR / 1000 + 1, "no answer")
    assert settle(store, late) == [Settled.OVER]
    assert settle(store, late) == [Settled.OVER]  # a resend
    failed = store.run(looking.get(f"s@{tick}"))
    assert failed is not None
    assert (failed.state, failed.error) == (State.FAILED, "no answer")
    assert field_of(client, "outcome") == b"failed"


def test_a_tick_is_retried_before_the_next_one_is_due(store: Store, client: redis.Redis) -> None:
    due_series(store, client)
    [claimed] = claim(store).tasks
    assert settle(store, Settlement(claimed.id, "t", "retry", 60, "no")) == [Settled.DONE]
    assert state_of(store, claimed.id) is State.PENDING


def test_a_waiting_retry_ends_when_the_next_one_is_due(store: Store, client: redis.Redis) -> None:
    tick = due_series(store, client, successor_in=500)
    [claimed] = claim(store).tasks
    assert settle(store, Settlement(claimed.id, "t", "retry", 0.001, "no answer")) == [Settled.DONE]
    wait_until(client, tick + 500)
    assert claim(store).tasks == []
    failed = store.run(looking.get(claimed.id))
    assert failed is not None
    assert failed.state is State.FAILED
    assert failed.error == "no answer\nnot attempted again: the next tick is due"


def test_a_tick_that_lapsed_runs_again_where_ticks_may_overlap(
    store: Store, client: redis.Redis
) -> None:
    tick = due_series(store, client, successor_in=500, overlap="allow")
    [claimed] = claim(store, "dead").tasks
    beating(store)
    client.zadd(f"{PREFIX}:running", {claimed.id: 1})
    wait_until(client, tick + 500)
    assert store.run(reconciling.sweep(Settings())).lapsed == [claimed.id]
    [again] = claim(store, "alive").tasks
    assert again.id == claimed.id


def test_a_tick_without_its_series_is_a_task_like_any_other(
    store: Store, client: redis.Redis
) -> None:
    tick = due_series(store, client, successor_in=20)
    client.delete(f"{PREFIX}:series:s", f"{PREFIX}:series")
    wait_until(client, tick + 20)
    [claimed] = claim(store).tasks
    settle(store, Settlement(claimed.id, "t", "retry", 60, "no"))
    assert client.exists(f"{PREFIX}:series:s") == 0
    assert state_of(store, claimed.id) is State.PENDING


# Changes


def test_putting_a_series_again_does_nothing(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    client.expire(f"s@{tick}:?mail.send?[1]", 7200)
    assert put(store, series(), tick + 5, before="f1") is Put.UNCHANGED
    assert put(store, series(), tick + 5) is Put.UNCHANGED  # a resend
    assert client.ttl(f"s@{tick}:?mail.send?[1]") > 7000
    assert place_of(client) == tick


def test_a_change_replaces_the_waiting_tick_in_one_step(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(tags="old"), tick)
    changed = series(fingerprint="f2", call="mail.send?[2]", spec="every 2h")
    assert put(store, changed, tick + HOUR, before="f1") is Put.CHANGED
    assert state_of(store, f"s@{tick}") is None
    assert client.exists(f"s@{tick}:?mail.send?[1]") == 0
    assert client.exists(f"s@{tick + HOUR}:?mail.send?[2]") == 1
    assert field_of(client, "tags") is None
    assert client.exists(f"{PREFIX}:tag:old") == 0
    assert client.zrange(f"{PREFIX}:pending", 0, -1) == [f"s@{tick + HOUR}".encode()]


def test_a_change_at_the_same_time_replaces_the_tick_too(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    put(store, series(fingerprint="f2", call="mail.send?[2]"), tick, before="f1")
    task = store.run(looking.get(f"s@{tick}"))
    assert task is not None
    assert task.args == [2]
    assert client.exists(f"s@{tick}:?mail.send?[1]") == 0


def test_a_tick_that_has_run_is_not_made_once_more(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    store.run(producing.run_now(f"s@{tick}"))  # before its time
    wait_until(client, server_ms(client) + 2)
    [claimed] = claim(store).tasks
    settle(store, Settlement(claimed.id, "t", "succeeded"))
    put(store, series(fingerprint="f2", call="mail.send?[2]"), tick, before="f1")
    assert state_of(store, f"s@{tick}") is State.SUCCEEDED
    assert client.zcard(f"{PREFIX}:pending") == 0
    assert client.exists(f"s@{tick}:?mail.send?[2]") == 0
    assert place_of(client) == tick


def test_a_change_leaves_a_running_tick_alone(store: Store, client: redis.Redis) -> None:
    tick = due_series(store, client)
    [running] = claim(store).tasks
    put(store, series(fingerprint="f2"), tick + HOUR, before="f1")
    assert state_of(store, running.id) is State.RUNNING
    assert settle(store, Settlement(running.id, "t", "succeeded")) == [Settled.DONE]
    assert field_of(client, "outcome") == b"succeeded"


def test_a_change_of_what_has_changed_meanwhile_is_refused(
    store: Store, client: redis.Redis
) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    put(store, series(fingerprint="f2"), tick, before="f1")
    assert put(store, series(fingerprint="f3"), tick, before="f1") is Put.RACE
    assert put(store, series("other"), server_ms(client) - 1) is Put.LATE
    assert field_of(client, "call", "other") is None


def test_removing_a_series_removes_its_waiting_tick(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    assert store.run(series_commands.remove_series(["s", "none"], LEASE)) == [
        Removal.REMOVED, Removal.NOT_FOUND
    ]  # fmt: skip
    assert state_of(store, f"s@{tick}") is None
    left = {key for key in client.scan_iter() if b":meta" not in key}
    answer = left.pop()  # for the same call, should it be sent again
    assert answer.startswith(f"{PREFIX}:removed:".encode())
    assert 0 < client.pttl(answer) <= 60_000
    assert left == set()


def test_a_running_tick_outlives_its_series(store: Store, client: redis.Redis) -> None:
    due_series(store, client)
    [running] = claim(store).tasks
    store.run(series_commands.remove_series(["s"], LEASE))
    assert settle(store, Settlement(running.id, "t", "succeeded")) == [Settled.DONE]
    assert client.exists(f"{PREFIX}:series:s") == 0


def test_a_paused_series_makes_no_ticks_until_it_goes_on(store: Store, client: redis.Redis) -> None:
    tick = due_series(store, client)
    assert store.run(series_commands.pause_series("s"))
    assert store.run(series_commands.pause_series("s"))
    assert not store.run(series_commands.pause_series("none"))
    assert state_of(store, f"s@{tick}") is None
    assert store.run(series_commands.find_due_series()).series == []
    assert not follow(store, "s", tick, tick + HOUR)
    later = Times(tick + HOUR, tick + HOUR, None)
    assert (
        store.run(series_commands.resume_series("s", b"f1", later))
        is series_commands.Resumption.RESUMED
    )
    assert (
        store.run(series_commands.resume_series("s", b"f1", later))
        is series_commands.Resumption.RESUMED
    )
    assert state_of(store, f"s@{tick + HOUR}") is State.PENDING
    assert place_of(client) == tick + HOUR


def test_a_paused_series_can_change_and_stays_paused(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    store.run(series_commands.pause_series("s"))
    assert put(store, series(fingerprint="f2"), tick, before="f1") is Put.CHANGED
    assert state_of(store, f"s@{tick}") is None
    assert (
        store.run(series_commands.resume_series("s", b"f1", None))
        is series_commands.Resumption.RACE
    )
    times = Times(tick, tick, None)
    assert (
        store.run(series_commands.resume_series("s", b"f2", times))
        is series_commands.Resumption.RESUMED
    )


def test_one_more_tick_leaves_the_others_alone(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    call = series_commands.run_series("s")
    extra = store.run(call)
    assert extra is not None
    assert store.run(call) == extra  # a resend
    wait_until(client, server_ms(client) + 2)
    assert [task.id for task in claim(store).tasks] == [extra]
    assert state_of(store, f"s@{tick}") is State.PENDING
    assert place_of(client) == tick
    assert store.run(series_commands.run_series("none")) is None


# Declarations


def stand(store: Store, listener: str, fingerprint: str) -> tuple[DeclarationState, str]:
    store.run(claiming.heartbeat(listener, LEASE, [], code="c0de"))
    [standing] = store.run(
        series_commands.declare_series(listener, LEASE, [("s", fingerprint)])
    ).standings
    return standing


def declared(fingerprint: str) -> series_commands.NewSeries:
    return series(fingerprint=fingerprint, declared=True)


def test_what_was_first_seen_last_counts_until_nobody_carries_it(
    store: Store, client: redis.Redis
) -> None:
    tick = server_ms(client) + HOUR
    assert stand(store, "old", "aa") == (DeclarationState.PUT, "")
    put(store, declared("aa"), tick)
    assert stand(store, "old", "aa") == (DeclarationState.STANDS, "aa")
    assert stand(store, "new", "bb") == (DeclarationState.PUT, "aa")
    put(store, declared("bb"), tick, before="aa")
    assert stand(store, "new", "bb") == (DeclarationState.STANDS, "bb")
    assert stand(store, "old", "aa") == (DeclarationState.OTHERS, "bb")
    store.run(claiming.leave("new"))
    assert stand(store, "old", "aa") == (DeclarationState.PUT, "bb")  # the deploy went back
    put(store, declared("aa"), tick, before="bb")
    assert stand(store, "again", "bb") == (DeclarationState.PUT, "aa")  # and forth


def test_a_silent_listener_carries_nothing(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    stand(store, "old", "aa")
    put(store, declared("aa"), tick)
    stand(store, "dead", "bb")
    stand(store, "dead", "bb")
    assert stand(store, "old", "aa")[0] is DeclarationState.OTHERS
    client.zadd(f"{PREFIX}:listeners", {"dead": server_ms(client) - 21_000})
    assert stand(store, "old", "aa")[0] is DeclarationState.STANDS


def test_what_a_listener_declares_cannot_be_removed_meanwhile(
    store: Store, client: redis.Redis
) -> None:
    stand(store, "l", "aa")
    put(store, declared("aa"), server_ms(client) + HOUR)
    stand(store, "l", "aa")
    read = store.run(series_commands.get_series("s", LEASE)).series
    assert read is not None
    assert read.carriers == 1
    assert store.run(series_commands.remove_series(["s"], LEASE)) == [Removal.CARRIED]
    store.run(claiming.leave("l"))
    assert store.run(series_commands.remove_series(["s"], LEASE)) == [Removal.REMOVED]


def test_a_declaration_does_not_take_what_a_producer_scheduled(
    store: Store, client: redis.Redis
) -> None:
    put(store, series(), server_ms(client) + HOUR)
    assert stand(store, "l", "aa") == (DeclarationState.SCHEDULED, "f1")


# Looking


def test_series_are_read_one_by_one_and_in_pages(store: Store, client: redis.Redis) -> None:
    now = server_ms(client)
    for number in range(5):
        put(store, series(f"s{number}"), now + (5 - number) * HOUR)
    page = store.run(series_commands.series_page("0", LEASE, 3))
    assert [one.id for one in page.series] == ["s4", "s3", "s2"]
    page = store.run(series_commands.series_page(page.cursor, LEASE, 3))
    assert ([one.id for one in page.series], page.cursor) == (["s1", "s0"], "0")
    one = store.run(series_commands.get_series("s0", LEASE)).series
    assert one is not None
    assert (one.due, one.waiting, one.last) == (now + 5 * HOUR, State.PENDING, None)
    assert (one.text("call"), one.whole("tick")) == ("mail.send?[1]", now + 5 * HOUR)
    client.expire(f"s0@{now + 5 * HOUR}:?mail.send?[1]", 60)
    moved = store.run(series_commands.get_series("s0", LEASE)).series
    assert moved is not None
    assert moved.due is not None
    assert moved.due < now + HOUR
    assert store.run(series_commands.get_series("none", LEASE)).series is None


def test_a_database_whose_meta_was_lost_still_has_series(store: Store, client: redis.Redis) -> None:
    tick = server_ms(client) + HOUR
    put(store, series(), tick)
    client.delete(f"{PREFIX}:meta")
    store.run(producing.make([new("a")]))
    assert client.hget(f"{PREFIX}:meta", "features") == b"series"
    assert store.run(claiming.heartbeat("l", LEASE, [], code="c0de")).next_making is not None
