"""Limits in the scripts: who gets a slot, who waits, and what frees a slot again."""

from collections.abc import Iterable
from typing import Any

import pytest
import redis

from expirebridge import Bridge, Change, InvalidTask
from expirebridge.errors import ScriptFailed
from expirebridge.limits.calls import declare_limits, let_pass, set_weight
from expirebridge.limits.hold_calls import put_hold, release_hold
from expirebridge.series import calls
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing, reconciling
from expirebridge.task.calls.claiming import FairShareInput, Refusal, Settled, Settlement
from expirebridge.task.calls.reconciling import EventKind
from tests.kit.series import due_series
from tests.kit.steps import beating, claim, new, server_ms, settle
from tests.machine.world import age

pytestmark = pytest.mark.servers("oldest")

PREFIX = "expirebridge:"
Field = tuple[str, bytes]
ONE_EACH = [
    ("f mail.send", b'[["mail.send:to",0,"to",null]]'),
    ("l mail.send:to", b'{"most":1}'),
]
TWO_IN_ALL = [("f mail.send", b'[["mail.send"]]'), ("l mail.send", b'{"most":2}')]


def declare(store: Store, fields: Iterable[Field]) -> None:
    store.run(declare_limits("aa", fields))


def make(store: Store, *ids: str, args: str = "[1]", **options: object) -> None:
    """Make tasks that are due, each a millisecond before the next."""
    for place, id in enumerate(ids):
        call = f"mail.send?{args}".encode()
        store.run(producing.make([new(id, place - 1000, call=call, **options)]))


def taken(store: Store, token: str = "t", places: int = 100) -> list[str]:
    return [task.id for task in claim(store, token, places=places).tasks]


def end(store: Store, *ids: str, outcome: str = "succeeded", token: str = "t") -> None:
    settle(store, *(Settlement(id, token, outcome) for id in ids))


def members(client: redis.Redis, key: str) -> list[str]:
    is_set = client.type(PREFIX + key) == b"set"
    ids: Any = client.smembers(PREFIX + key) if is_set else client.zrange(PREFIX + key, 0, -1)
    names = [id.decode() for id in ids]
    return sorted(names) if is_set else names


def holders(client: redis.Redis, lane: str) -> list[str]:
    return members(client, f"lane:{lane}")


def test_no_more_run_in_a_lane_than_it_has_slots(store: Store, client: redis.Redis) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c", "d")
    claimed = claim(store)
    assert [task.id for task in claimed.tasks] == ["a", "b"]
    assert claimed.parked == 2
    assert holders(client, "mail.send") == ["a", "b"]
    assert members(client, "waiting") == members(client, "queue:mail.send") == ["c", "d"]
    assert client.zscore(PREFIX + "lanes", "mail.send") == 4
    assert taken(store) == []
    end(store, "b")
    assert holders(client, "mail.send") == ["a", "c"]
    assert members(client, "pending") == ["c"]
    assert taken(store, "u") == ["c"]
    end(store, "a")
    end(store, "c", token="u")
    assert taken(store) == ["d"]
    end(store, "d")
    assert members(client, "lanes") == holders(client, "mail.send") == []
    assert members(client, "grants") == []


def rings(client: redis.Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"])


@pytest.mark.parametrize(
    ("claims", "codes", "told"), [(2, 1, True), (1, 1, False), (0, 1, False), (2, 2, False)]
)
def test_who_frees_slots_and_claims_next_is_told_and_nobody_else(
    store: Store, client: redis.Redis, claims: int, codes: int, told: bool
) -> None:
    declare(store, TWO_IN_ALL)
    for code in ("c0de", "c0de2")[:codes]:
        store.run(claiming.heartbeat(f"of {code}", 10, [], code=code))
    make(store, "a", "b", "c", "d")
    taken(store)
    before = rings(client)
    ended = [Settlement(id, "t", "succeeded") for id in ("a", "b")]
    answers = store.run(claiming.settle(ended, Settings(), claims=claims))
    assert answers == [Settled.DONE] * 2 + [Settled.GRANTED] * told
    assert rings(client) - before == (not told)
    assert members(client, "pending") == ["c", "d"]


def test_what_has_no_limit_passes_many_that_are_made_to_wait(
    store: Store, client: redis.Redis
) -> None:
    declare(store, TWO_IN_ALL)
    now = server_ms(client)
    flood = [new(f"a{n}", now - 5000, call=b"mail.send?[1]", relative=False) for n in range(400)]
    fresh = [new(id, now - 3000, call=b"orders.rate?[1]", relative=False) for id in ("b", "c")]
    store.run(
        producing.make([*flood, *fresh, new("d", now - 50, call=b"mail.send?[1]", relative=False)])
    )
    claimed = claim(store, places=4)
    assert sorted(task.id for task in claimed.tasks)[2:] == ["b", "c"]
    assert claimed.parked >= 100
    assert members(client, "pending")[-1] == "d"


def test_what_can_run_does_not_wait_until_all_before_it_are_made_to_wait(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [*TWO_IN_ALL, ("f post.send", b'[["post"]]'), ("l post", b'{"most":5}')])
    now = server_ms(client)
    flood = [
        new(f"a{n:05}", now - 5000, call=b"mail.send?[1]", relative=False) for n in range(3000)
    ]
    among = [
        new(f"a01500-{call[:4].decode()}", now - 5000, call=call, relative=False)
        for call in (b"orders.rate?[1]", b"post.send?[1]")
    ]
    store.run(producing.make([*flood, *among]))
    claims = [claim(store, f"t{n}", places=10) for n in range(4)]
    found = [task.id for each in claims for task in each.tasks]
    assert sorted(found) == ["a00000", "a00001", "a01500-orde", "a01500-post"]
    for each in claims:
        settle(store, *(Settlement(task.id, task.token, "succeeded") for task in each.tasks))
    # The others are made to wait in the order in which they are due.
    for number in range(40):
        claim(store, f"u{number}")
    assert members(client, "queue:mail.send")[:2] == ["a00004", "a00005"]
    assert len(members(client, "queue:mail.send")) == 2996


def test_of_many_listeners_each_makes_few_wait_at_a_time(store: Store, client: redis.Redis) -> None:
    declare(store, TWO_IN_ALL)
    make(store, *(f"a{n:03}" for n in range(300)))
    claims = [
        store.run(
            claiming.claim(
                f"t{n}", Settings(), places=100, idle=True, share=FairShareInput(listeners, 0)
            )
        )
        for n, listeners in enumerate((1, 4, 10))
    ]
    assert [each.parked for each in claims] == [100, 25, 20]
    assert members(client, "queue:mail.send")[:2] == ["a002", "a003"]
    assert len(members(client, "queue:mail.send")) == 145


def test_a_claim_that_meets_many_lanes_makes_few_wait(store: Store, client: redis.Redis) -> None:
    declare(store, ONE_EACH)
    now = server_ms(client)
    flood = [
        new(f"{turn}-{n:03}", now - 5000 + turn, call=b"mail.send?[%d]" % n, relative=False)
        for turn in range(3)
        for n in range(300)
    ]
    store.run(producing.make(flood))
    claimed = claim(store, places=100)
    assert len(claimed.tasks) == 100
    for number in range(3):
        claimed = claim(store, f"t{number}", places=100)
        assert claimed.parked <= 200


def test_two_tasks_with_what_the_other_needs_do_not_wait_for_each_other(
    store: Store, client: redis.Redis
) -> None:
    fields = [
        ("f mail.send", b'[["pace"],["all"]]'),
        ("l pace", b'{"starts":1,"every":1000000,"burst":1}'),
        ("l all", b'{"most":1}'),
    ]
    declare(store, fields)
    make(store, "a", "b")
    for id, lane in (("a", "pace"), ("b", "all")):
        client.hset(f"{PREFIX}task:{id}", "slots", lane)
        client.sadd(f"{PREFIX}lane:{lane}", id)
        client.zadd(PREFIX + "grants", {id: server_ms(client)})
    # The first is charged for its turn; the second keeps its slot, and is the next to start.
    assert taken(store) == []
    assert members(client, "queue:all") == ["a"]
    assert holders(client, "all") == holders(client, "pace") == ["b"]
    age(client, 1)
    store.run(reconciling.sweep(Settings()))
    assert taken(store) == ["b"]
    end(store, "b")
    assert taken(store) == []
    age(client, 1)
    assert taken(store) == ["a"]


def test_those_that_had_their_turn_hold_one_slot_while_they_wait_for_a_start(
    store: Store, client: redis.Redis
) -> None:
    fields = [
        ("f mail.send", b'[["pace"],["all"]]'), ("f post.send", b'[["all"]]'),
        ("l pace", b'{"starts":1,"every":60000000,"burst":1}'), ("l all", b'{"most":3}'),
    ]  # fmt: skip
    declare(store, fields)

    def post(*ids: str) -> None:
        store.run(producing.make([new(id, -1, call=b"post.send?[1]") for id in ids]))

    post("a", "b", "c")
    assert taken(store, "s") == ["a", "b", "c"]
    for id in ("d", "e", "f"):
        make(store, id)
        assert taken(store) == []
        age(client, 61)
    assert members(client, "queue:all") == ["d", "e", "f"]
    post("g", "h", "i")
    assert taken(store) == []
    # Another start comes between: none of them has paid any longer.
    client.zadd(PREFIX + "rates", {"pace": (server_ms(client) + 30_000) * 1000})
    end(store, "a", "b", "c", token="s")
    ran = [*taken(store), *taken(store)]
    assert ran == ["g", "h"]
    assert len(holders(client, "all")) == 3
    end(store, "g", "h")
    assert taken(store) == ["i"]
    end(store, "i")
    starts = []
    for _ in range(4):
        age(client, 60)
        starts += (ids := taken(store))
        end(store, *ids)
    assert starts == ["d", "e", "f"]


def test_a_hold_on_a_fair_limit_is_released_over_a_time(store: Store, client: redis.Redis) -> None:
    declare(store, FAIR)
    for number in range(3):
        make_of(store, "x", f"x{number}")
        make_of(store, "y", f"y{number}")
    [first] = taken(store)
    store.run(put_hold("func mail.send", until=None, reason="", by=""))
    end(store, first)
    for _ in range(6):
        assert taken(store) == []
    store.run(release_hold("func mail.send", spread=60))
    ran = {first}
    for _ in range(20):
        age(client, 10)
        ran |= {*(ids := taken(store))}
        end(store, *ids)
    assert ran == {f"{tenant}{number}" for tenant in "xy" for number in range(3)}
    assert members(client, "lanes") == []


def test_a_slot_that_was_kept_while_the_limit_was_lost_is_freed(
    store: Store, client: redis.Redis
) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c")
    assert taken(store) == ["a", "b"]
    client.delete(PREFIX + "limits")
    settle(store, Settlement("a", "t", "retry", 3600), Settlement("b", "t", "retry", 3600))
    declare(store, TWO_IN_ALL)
    store.run(reconciling.sweep(Settings()))
    assert taken(store) == ["c"]
    assert holders(client, "mail.send") == ["c"]


def test_each_value_has_a_lane_of_its_own(store: Store) -> None:
    declare(store, ONE_EACH)
    make(store, "a", "b", args='["x"]')
    make(store, "c", args='{"to":"x"}')
    make(store, "d", args='["y"]')
    assert taken(store) == ["a", "d"]


def test_a_task_waits_for_two_limits_and_keeps_what_it_has(
    store: Store, client: redis.Redis
) -> None:
    fields = [
        ("f mail.send", b'[["each",0,"to",null],["all"]]'),
        ("l each", b'{"most":1}'),
        ("l all", b'{"most":1}'),
    ]
    declare(store, fields)
    make(store, "a", args='["x"]')
    make(store, "b", args='["y"]')
    make(store, "c", args='["y"]')
    assert taken(store) == ["a"]
    assert members(client, "queue:all") == ["b"]
    assert members(client, "queue:each=y") == ["c"]
    assert holders(client, "each=y") == ["b"]
    end(store, "a")
    assert taken(store) == ["b"]
    end(store, "b")
    assert taken(store) == ["c"]
    end(store, "c")
    assert members(client, "lanes") == []


@pytest.mark.parametrize("outcome", ["retry", "snoozed", "failed", "unknown"])
def test_an_outcome_frees_the_slot(store: Store, outcome: str) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c")
    assert taken(store) == ["a", "b"]
    settle(store, Settlement("a", "t", outcome, delay=60))
    assert taken(store) == ["c"]


def test_what_is_released_keeps_its_slot(store: Store, client: redis.Redis) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c")
    taken(store)
    end(store, "a", outcome="released")
    assert holders(client, "mail.send") == ["a", "b"]
    assert taken(store) == ["a"]


def test_a_claim_that_frees_a_slot_grants_it_for_the_next_claim(
    store: Store, client: redis.Redis
) -> None:
    declare(store, ONE_EACH)
    make(store, "a")
    assert taken(store) == ["a"]
    make(store, "b")
    assert taken(store) == []
    end(store, "a")
    assert holders(client, "mail.send:to=1") == ["b"]
    client.set("b:?mail.send?[1]", "")
    make(store, "c")
    claimed = claim(store)
    assert (claimed.tasks, claimed.parked) == ([], 1)
    assert members(client, "paused") == ["b"]
    assert holders(client, "mail.send:to=1") == members(client, "pending") == ["c"]
    assert claimed.next_due is not None
    assert claimed.next_due * 1000 < claimed.now_us  # so its listener claims again at once
    assert taken(store) == ["c"]


def test_a_slot_that_nobody_takes_goes_to_the_next_after_a_lease(
    store: Store, client: redis.Redis
) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c", "d")
    taken(store)
    end(store, "a")
    assert members(client, "grants") == ["c"]
    client.zadd(PREFIX + "grants", {"c": 0})
    store.run(reconciling.sweep(Settings()))
    assert members(client, "queue:mail.send") == ["c"]
    assert members(client, "grants") == ["d"]
    assert taken(store) == ["d"]
    end(store, "d")
    assert taken(store) == ["c"]
    task = store.run(looking.get("c"))
    assert task is not None
    assert task.error == "no listener took it while it had its slot"


def test_a_task_that_waits_too_long_fails(store: Store, client: redis.Redis) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"most":1,"wait":300000}')])
    make(store, "a", "b")
    taken(store)
    client.hset(PREFIX + "task:b", "parked", 0)
    client.zadd(PREFIX + "waits", {"b": 0})
    store.run(reconciling.sweep(Settings()))
    task = store.run(looking.get("b"))
    assert task is not None
    assert (task.state, task.error) == (
        "failed", "waited longer than 300 s for a slot of mail.send"
    )  # fmt: skip
    assert members(client, "queue:mail.send") == members(client, "waits") == []


def test_a_longer_wait_counts_for_those_that_wait_already(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"most":1,"wait":300000}')])
    make(store, "a", "b")
    taken(store)
    parked = server_ms(client) - 400_000
    client.hset(PREFIX + "task:b", "parked", parked)
    client.zadd(PREFIX + "waits", {"b": parked + 300_000})
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"most":1,"wait":3600000}')])
    store.run(reconciling.sweep(Settings()))
    assert members(client, "waiting") == ["b"]
    assert client.zscore(PREFIX + "waits", "b") == parked + 3_600_000


def test_a_task_whose_slot_was_taken_back_waits_no_longer_than_any_other(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"most":1,"wait":300000}')])
    make(store, "a", "b", "c")
    taken(store)
    end(store, "a")
    client.zadd(PREFIX + "grants", {"b": 0})
    store.run(reconciling.sweep(Settings()))
    assert members(client, "queue:mail.send") == members(client, "waits") == ["b"]


def test_lost_limits_are_declared_again_before_anything_is_claimed(
    store: Store, client: redis.Redis
) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c")
    taken(store)
    client.delete(PREFIX + "limits")
    end(store, "a")  # no slot is known: none is granted
    assert members(client, "waiting") == ["c"]
    asked = claiming.claim("t", Settings(), places=9, idle=True, limits="aa")
    assert store.run(asked).refusal is Refusal.UNDECLARED
    declare(store, TWO_IN_ALL)
    assert store.run(asked).refusal is None
    store.run(reconciling.sweep(Settings()))
    assert taken(store) == ["c"]


def test_limits_hold_although_the_features_in_use_were_lost(
    store: Store, client: redis.Redis
) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c")
    taken(store)
    client.delete(PREFIX + "meta")
    store.run(claiming.heartbeat("another", 10, [], code="c0de"))
    make(store, "d")
    assert taken(store) == []


def test_a_limit_that_no_handler_has_any_longer_lets_all_go(
    store: Store, client: redis.Redis
) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c", "d")
    taken(store)
    store.run(declare_limits("", [("f mail.send", b"[]")]))
    assert store.run(reconciling.sweep(Settings())).mended == 0
    assert taken(store) == ["c", "d"]
    assert holders(client, "mail.send") == ["a", "b"]
    assert store.run(reconciling.sweep(Settings())).mended == 0


def test_a_rate_is_charged_at_the_claim(store: Store, client: redis.Redis) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"starts":1,"every":3600000000,"burst":2}')])
    make(store, "a", "b", "c", "d")
    assert taken(store) == ["a", "b"]
    # The first of those that wait is pending until its start, an hour later.
    assert members(client, "pending") == ["c"]
    assert members(client, "queue:mail.send") == ["d"]
    start = client.zscore(PREFIX + "pending", "c")
    assert isinstance(start, float)
    assert 3_590_000 < start - server_ms(client) < 3_601_000
    end(store, "a")
    assert taken(store) == []
    store.run(producing.cancel(["c"], keep=60.0))
    assert members(client, "pending") == ["d"]


def test_a_rate_that_was_raised_holds_at_once(store: Store, client: redis.Redis) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"starts":1,"every":3600000000,"burst":1}')])
    make(store, "a", "b", "c")
    assert taken(store) == ["a"]
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"starts":1,"every":60000000,"burst":1}')])
    store.run(reconciling.sweep(Settings()))
    start = client.zscore(PREFIX + "pending", "b")
    assert isinstance(start, float)
    assert start <= server_ms(client) + 1 + 60_000  # a start is rounded up, to a whole ms
    store.run(producing.run_now("b"))
    assert taken(store) == []  # not before its start
    assert members(client, "queue:mail.send") == ["c"]


@pytest.mark.parametrize("stored", [None, "inf"])
def test_looks_at_a_rate_that_was_raised_do_not_put_its_next_start_off(
    store: Store, client: redis.Redis, stored: str | None
) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"starts":1,"every":3600000000,"burst":1}')])
    make(store, "a", "b", "c")
    assert taken(store) == ["a"]
    if stored:
        client.execute_command("ZADD", PREFIX + "rates", stored, "mail.send")
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"starts":1,"every":50000,"burst":1}')])
    started: list[str] = []
    latest = server_ms(client) + 10_000
    while len(started) < 2 and server_ms(client) < latest:
        store.run(reconciling.sweep(Settings()))
        started += taken(store)
    assert started == ["b", "c"]


@pytest.mark.parametrize("heard", ["deleted", "expired"])
def test_a_late_event_of_its_key_changes_no_task_that_was_granted_a_start(
    store: Store, client: redis.Redis, heard: str
) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"starts":1,"every":3600000000,"burst":1}')])
    make(store, "a")
    store.run(producing.make([new("b", 60_000)]))
    store.run(producing.run_now("b"))  # this deletes its key
    assert taken(store) == ["a"]
    start = client.zscore(PREFIX + "pending", "b")
    name = b"b:?mail.send?[1]"
    event = reconciling.EventKind(heard)
    assert store.run(reconciling.find_unexplained([name], event)) == set()
    hint = reconciling.KeyEvent(name, "b", b"mail.send?[1]", event)
    store.run(reconciling.adopt([hint], Settings()))
    assert client.zscore(PREFIX + "pending", "b") == start


@pytest.mark.parametrize("how", ["pause", "remove"])
def test_a_tick_that_is_dropped_with_its_series_frees_its_slot(
    store: Store, client: redis.Redis, how: str
) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"most":1}')])
    make(store, "a")
    assert taken(store) == ["a"]
    tick = f"s@{due_series(store, client)}"
    store.run(producing.make([new("b")]))
    assert taken(store) == []
    end(store, "a")
    assert members(client, "lane:mail.send") == [tick]
    if how == "pause":
        store.run(calls.pause_series("s"))
    else:
        store.run(calls.remove_series(["s"], 10.0))
    assert members(client, "lane:mail.send") == ["b"]


def test_a_sweep_notes_how_many_a_lane_has(store: Store, client: redis.Redis) -> None:
    declare(store, TWO_IN_ALL)
    client.zadd(PREFIX + "lanes", {"mail.send": 7})
    assert store.run(reconciling.sweep(Settings())).mended == 1
    assert members(client, "lanes") == []


@pytest.mark.parametrize(
    "damage",
    [
        ("DEL", "queue:mail.send"),
        ("HSET", "task:c", "queue", "elsewhere"),
        ("HDEL", "task:c", "queue"),
        ("SET", "queue:mail.send", "x"),
        ("DEL", "turns:mail.send"),
        ("SET", "turns:mail.send", "x"),
        ("SET", "shares:mail.send", "x"),
        ("DEL", "queue:mail.send\t1"),
        ("SET", "queue:mail.send\t1", "x"),
        ("HSET", "task:c", "due", "nan"),
        ("HSET", "task:c", "due", "1e400"),
        ("HSET", "task:c", "waited", "nan"),
        ("HSET", "task:c", "parked", "-1e400"),
    ],
)
@pytest.mark.parametrize("fair", [pytest.param(False, marks=pytest.mark.rest), True])
def test_a_task_whose_queue_another_client_damaged_does_not_wait_for_ever(
    store: Store, client: redis.Redis, damage: tuple[str, ...], *, fair: bool
) -> None:
    by_turn = [
        ("f mail.send", b'[["mail.send",null,null,null,0,"to"]]'),
        ("l mail.send", b'{"most":2,"fair":true}'),
    ]
    declare(store, by_turn if fair else TWO_IN_ALL)
    make(store, "a", "b", "c")
    assert taken(store) == ["a", "b"]
    command, key, *values = damage
    if command == "SET":
        client.delete(PREFIX + key)
    client.execute_command(command, PREFIX + key, *values)
    make(store, "d")
    end(store, "a", "b")
    store.run(reconciling.sweep(Settings()))
    assert sorted(taken(store) + taken(store)) == ["c", "d"]
    end(store, "c", "d")
    assert members(client, "waiting") == members(client, "lanes") == []
    assert store.run(reconciling.sweep(Settings())).mended == 0


def test_garbage_in_the_pace_of_a_release_lets_all_go(store: Store, client: redis.Redis) -> None:
    client.hset(PREFIX + "holds", "func mail.send", "")
    store.run(reconciling.sweep(Settings()))
    make(store, "a", "b")
    assert taken(store) == []
    client.hdel(PREFIX + "holds", "func mail.send")
    client.hset(PREFIX + "limits", "p hold func mail.send", "nan nan")
    store.run(reconciling.sweep(Settings()))
    assert taken(store) == ["a", "b"]


@pytest.mark.parametrize("way", ["lapse", "released"])
def test_a_task_that_ran_is_due_again_although_its_due_time_is_no_number(
    store: Store, client: redis.Redis, way: str
) -> None:
    beating(store)
    make(store, "a")
    assert taken(store) == ["a"]
    client.hset(PREFIX + "task:a", "due", "nan")
    if way == "lapse":
        client.zadd(PREFIX + "running", {"a": 1})
        store.run(reconciling.sweep(Settings()))
    else:
        end(store, "a", outcome=way)
    assert taken(store, "u") == ["a"]


def test_holds_keep_tasks_back_and_a_plain_command_sets_one(
    store: Store, client: redis.Redis
) -> None:
    make(store, "a", fields={"tags": "vip"})
    make(store, "b")
    client.hset(PREFIX + "holds", "tag vip", "by hand")
    store.run(reconciling.sweep(Settings()))  # until then, claims look for no holds
    assert taken(store) == ["b"]
    assert members(client, "queue:hold tag vip") == ["a"]
    client.hdel(PREFIX + "holds", "tag vip")
    store.run(reconciling.sweep(Settings()))
    assert taken(store) == ["a"]
    client.hset(PREFIX + "holds", "func mail.send", '{"until": 1}')  # it is over
    make(store, "c")
    assert taken(store) == ["c"]


FAIR = [
    ("f mail.send", b'[["all",null,null,null,0,"tenant",null]]'),
    ("l all", b'{"most":1,"fair":true}'),
]


def make_of(store: Store, tenant: str, *ids: str) -> None:
    make(store, *ids, args=f'["{tenant}"]')


def run_all(store: Store, count: int) -> list[str]:
    """Run one after the other; returns the order."""
    order = []
    for _ in range(count):
        [id] = taken(store)
        order.append(id)
        end(store, id)
    return order


def test_tenants_take_turns(store: Store, client: redis.Redis) -> None:
    declare(store, FAIR)
    make_of(store, "heavy", "h1", "h2", "h3", "h4")
    assert taken(store) == ["h1"]
    make_of(store, "light", "l1", "l2")
    taken(store)
    end(store, "h1")
    assert run_all(store, 5) == ["h2", "l1", "h3", "l2", "h4"]
    assert client.keys(PREFIX + "turns:*") == client.keys(PREFIX + "shares:*") == []


def test_a_tenant_with_more_weight_has_more_turns(store: Store, client: redis.Redis) -> None:
    declare(store, FAIR)
    store.run(set_weight("all", "big", 2))
    assert client.hgetall(PREFIX + "weights") == {b"all big": b"2.0"}
    make_of(store, "big", "b1", "b2", "b3", "b4", "b5")
    make_of(store, "small", "s1", "s2")
    assert len(taken(store)) == 1
    end(store, "b1")
    order = run_all(store, 6)
    assert order.index("s1") <= 2
    assert [id[0] for id in order].count("b") == 4
    assert "".join(id[0] for id in order[:5]) in {"bsbbs", "sbbsb", "bbsbb"}


@pytest.mark.parametrize("limits", [[], [("l all", b"{}")]])
def test_a_weight_of_a_limit_that_nobody_has_is_refused(
    store: Store, bridge: Bridge, client: redis.Redis, limits: list[Field]
) -> None:
    declare(store, limits)
    for weight in (2, 1):
        with pytest.raises(InvalidTask, match="limit='all': no handler of a listener has a limit"):
            bridge.weight("all", "big", weight)
    assert not client.exists(PREFIX + "weights")


def test_a_weight_of_a_limit_that_is_not_fair_is_refused(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    declare(store, [("f mail.send", b'[["all"]]'), ("l all", b'{"most":1}')])
    for weight in (2, 1):
        with pytest.raises(InvalidTask, match="limit='all': it is not fair"):
            bridge.weight("all", "big", weight)
    assert not client.exists(PREFIX + "weights")


def test_a_weight_is_taken_back_whatever_became_of_its_limit(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    declare(store, FAIR)
    bridge.weight("all", "big", 2)
    declare(store, [("f mail.send", b"[]")])
    bridge.weight("all", "big", 1)
    assert not client.exists(PREFIX + "weights")


@pytest.mark.parametrize("name", ["x", ""])
def test_a_tenant_that_has_just_had_a_turn_does_not_come_first_again(
    store: Store, name: str
) -> None:
    declare(store, FAIR)
    make_of(store, name, "x1", "x2")
    make_of(store, "y", "y1")
    assert taken(store) == ["x1"]
    end(store, "x1")
    assert taken(store) == ["x2"]
    make_of(store, name, "x3")
    assert taken(store) == []
    make_of(store, "z", "z1")
    assert taken(store) == []
    end(store, "x2")
    assert run_all(store, 3) == ["y1", "z1", "x3"]


ORDERED = [
    ("f mail.send", b'[["o",0,"order",null]]'),
    ("l o", b'{"most":1,"ordered":true}'),
]


def test_an_ordered_lane_keeps_its_slot_through_a_retry(store: Store, client: redis.Redis) -> None:
    declare(store, ORDERED)
    make(store, "a", "b", "c")
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "t", "retry", delay=60))
    assert taken(store) == []
    assert members(client, "grants") == []
    store.run(producing.run_now("a"))
    assert taken(store) == ["a"]
    end(store, "a", outcome="failed")
    assert taken(store) == ["b"]


def test_what_is_put_off_before_it_begins_lets_the_next_go(store: Store) -> None:
    declare(store, ORDERED)
    make(store, "a", "b")
    assert taken(store, places=1) == ["a"]
    taken(store)
    end(store, "a", outcome="released")
    store.run(producing.put_off(["b"], 60.0))
    assert taken(store) == ["a"]
    end(store, "a")
    assert taken(store) == []


def test_what_has_its_ordered_slot_is_taken_by_any_walk(store: Store) -> None:
    declare(store, ORDERED)
    make(store, "a", "b")
    assert taken_by_walk(store, from_front=0) == []
    assert taken_by_walk(store, from_front=1) == ["a"]
    end(store, "a")
    assert taken_by_walk(store, from_front=0) == ["b"]
    settle(store, Settlement("b", "t", "retry", delay=0))
    assert taken_by_walk(store, from_front=0) == ["b"]


def taken_by_walk(store: Store, *, from_front: int) -> list[str]:
    """Claim as a listener whose fleet runs another code, too."""
    walk = claiming.Walk(b"-inf", b"", b"+inf", from_front)
    call = claiming.claim_known(
        "t", Settings(), places=9, idle=True, code="aa ?", limits="aa", walks=[walk]
    )
    return [task.id for task in store.run(call).tasks]


def test_a_failed_one_may_hold_its_lane(store: Store, client: redis.Redis) -> None:
    declare(store, [ORDERED[0], ("l o", b'{"most":1,"ordered":true,"blocks":true}')])
    make(store, "a", "b")
    taken(store)
    end(store, "a", outcome="failed")
    assert taken(store) == []
    store.run(reconciling.sweep(Settings()))
    assert taken(store) == []
    store.run(producing.run_now("a"))
    assert taken(store) == ["a"]
    end(store, "a")
    assert taken(store) == ["b"]
    end(store, "b", outcome="failed")
    make(store, "c")
    assert taken(store) == []
    assert store.run(let_pass("c")) is Change.UNCHANGED
    assert store.run(let_pass("d")) is Change.NOT_FOUND
    assert store.run(let_pass("b")) is Change.PASSED
    assert taken(store) == ["c"]


def test_a_failed_one_that_is_purged_lets_the_next_one_pass_at_once(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [ORDERED[0], ("l o", b'{"most":1,"ordered":true,"blocks":true}')])
    make(store, "a", "b")
    taken(store)
    end(store, "a", outcome="failed")
    assert taken(store) == []
    store.run(producing.purge(["a"]))
    assert taken(store) == ["b"]


def test_a_tenant_s_slot_that_nobody_took_waits_for_its_turn_again(
    store: Store, client: redis.Redis
) -> None:
    declare(store, FAIR)
    make_of(store, "x", "x1", "x2")
    make_of(store, "y", "y1")
    taken(store)
    end(store, "x1")
    client.zadd(PREFIX + "grants", {"x2": 0})
    store.run(reconciling.sweep(Settings()))
    assert run_all(store, 2) == ["y1", "x2"]


def test_a_fair_slot_that_nobody_took_is_given_up_and_the_other_kept_as_a_grant(
    store: Store, client: redis.Redis
) -> None:
    fields = [
        ("f mail.send", b'[["each",0,"to",null],["all",null,null,null,0,"to",null]]'),
        ("l each", b'{"most":1}'),
        ("l all", b'{"most":1,"fair":true}'),
    ]
    declare(store, fields)
    make(store, "a", "b", args='["x"]')
    taken(store)
    end(store, "a", outcome="released")
    assert (holders(client, "each=x"), holders(client, "all")) == (["a"], ["a"])
    client.zadd(PREFIX + "grants", {"a": 0})
    store.run(reconciling.sweep(Settings()))
    assert client.hget(PREFIX + "task:a", "slots") == b"each=x"
    assert (holders(client, "each=x"), holders(client, "all")) == (["a"], [])
    assert members(client, "grants") == ["a"]
    assert run_all(store, 2) == ["a", "b"]
    assert members(client, "lanes") == []


def test_a_lost_meta_loses_no_slots(store: Store, client: redis.Redis) -> None:
    declare(store, TWO_IN_ALL)
    make(store, "a", "b", "c")
    taken(store)
    client.delete(PREFIX + "meta")
    make(store, "d")
    end(store, "a")
    assert taken(store) == ["c"]
    assert holders(client, "mail.send") == ["b", "c"]


# Busy: a handler lets the lane of its rate rest.

HOURLY = [
    ("f mail.send", b'[["hourly",0,"to",null]]'),
    ("l hourly", b'{"starts":1,"every":3600000000,"burst":3}'),
]


def busy(store: Store, id: str, seconds: float, rate: str = "hourly") -> Settled:
    settlement = Settlement(id, "t", "busy", seconds, "429", rate)
    [settled] = settle(store, settlement)
    return settled


def seconds_until(client: redis.Redis, key: str, member: str, unit: int = 1000) -> float:
    """Seconds from now to a time that is a score, in ms unless `unit` is another."""
    score = client.zscore(PREFIX + key, member)
    assert isinstance(score, float)
    return score / unit - server_ms(client) / 1000


@pytest.mark.parametrize("args", ['["x"]', '{"to":"x"}', '{"to":"x","text":"' + "-" * 3000 + '"}'])
def test_a_busy_lane_rests_and_others_go_on(store: Store, client: redis.Redis, args: str) -> None:
    declare(store, HOURLY)
    fields = {"args": args} if len(args) > 1000 else {}
    call = f"mail.send?{'*' if fields else args}".encode()
    store.run(producing.make([new("a", -1, call=call, fields=fields)]))
    assert taken(store) == ["a"]
    assert busy(store, "a", 60) is Settled.DONE
    task = store.run(looking.get("a"))
    assert task is not None
    assert (task.state, task.attempt, task.snoozes, task.error) == ("pending", 0, 1, "429")
    assert 59 < seconds_until(client, "pending", "a") <= 60
    make(store, "b", "c", args='["x"]')
    make(store, "d", args='["y"]')
    assert taken(store) == ["d"]
    assert 59 < seconds_until(client, "pending", "b") <= 60.001
    assert members(client, "queue:hourly=x") == ["c"]
    assert 59 < seconds_until(client, "rates", "rest hourly=x", 1_000_000) <= 60.001
    # Not one of the burst is left, so the second start is an hour after the first.
    age(client, 61)
    assert sorted(taken(store)) in (["a"], ["b"])
    age(client, 3500)
    assert taken(store) == []
    age(client, 100)
    assert len(taken(store)) == 1


def test_a_start_that_was_granted_waits_for_the_lane_to_be_rested(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [HOURLY[0], ("l hourly", b'{"starts":1,"every":3600000000,"burst":1}')])
    make(store, "a", "b", args='["x"]')
    assert taken(store) == ["a"]
    client.zadd(PREFIX + "pending", {"b": 0})  # its start has come
    assert busy(store, "a", 7200) is Settled.DONE
    assert taken(store) == []
    assert 7199 < seconds_until(client, "pending", "b") <= 7200.001
    assert members(client, "waiting") == []


def test_who_was_busy_is_first_again(store: Store, client: redis.Redis) -> None:
    declare(store, [HOURLY[0], ("l hourly", b'{"starts":1,"every":1000000,"burst":1}')])
    make(store, "a", "b", "c", "d", args='["x"]')
    assert taken(store) == ["a"]
    assert busy(store, "a", 60) is Settled.DONE
    ran = []
    for _ in range(70):
        age(client, 1)
        ran += taken(store)
    assert ran[:2] in (["a", "b"], ["b", "a"])  # due in the same millisecond, or granted before
    assert ran[2:] == ["c", "d"]


def test_busy_is_obeyed_once_and_never_shortens_a_rest(store: Store, client: redis.Redis) -> None:
    declare(store, HOURLY)
    make(store, "a", "b", args='["x"]')
    assert taken(store) == ["a", "b"]
    assert busy(store, "a", 600) is Settled.DONE
    before = client.zscore(PREFIX + "rates", "hourly=x")
    assert busy(store, "b", 60) is Settled.DONE
    assert busy(store, "a", 6000) is Settled.DONE  # sent again
    [refused] = settle(store, Settlement("a", "another", "busy", 6000, "429", "hourly"))
    assert refused is Settled.REFUSED
    assert client.zscore(PREFIX + "rates", "hourly=x") == before


def test_a_lane_rests_although_the_task_was_cancelled(store: Store, client: redis.Redis) -> None:
    declare(store, HOURLY)
    make(store, "a", args='["x"]')
    assert taken(store) == ["a"]
    store.run(producing.cancel(["a"], keep=60.0))
    assert busy(store, "a", 60) is Settled.DONE
    assert members(client, "cancelled") == ["a"]
    assert 59 < seconds_until(client, "rates", "rest hourly=x", 1_000_000) <= 60.001


@pytest.mark.parametrize("fields", [TWO_IN_ALL, [("f mail.send", b"[]")]])
def test_without_the_rate_only_the_busy_task_waits(
    store: Store, client: redis.Redis, fields: list[Field]
) -> None:
    declare(store, fields)
    make(store, "a")
    assert taken(store) == ["a"]
    assert busy(store, "a", 60, "mail.send") is Settled.DONE
    assert 59 < seconds_until(client, "pending", "a") <= 60
    assert not client.exists(PREFIX + "rates")
    make(store, "b")
    assert taken(store) == ["b"]


# What a script decides first and writes later


def test_a_claim_that_is_full_after_some_had_to_wait_has_no_share(store: Store) -> None:
    declare(store, [TWO_IN_ALL[0], ("l mail.send", b'{"most":1}')])
    make(store, "a", "b", "c")
    for n in range(4):
        store.run(producing.make([new(f"x{n}", call=b"orders.rate?[1]")]))
    claimed = claim(store, places=4)
    assert [task.id for task in claimed.tasks] == ["a", "x0", "x1", "x2"]
    assert not claimed.shared


def test_a_stale_place_in_a_tenant_s_queue_keeps_nobody_waiting(
    store: Store, client: redis.Redis
) -> None:
    declare(store, FAIR)
    make_of(store, "x", "a", "b")
    taken(store)
    client.zadd(PREFIX + "queue:all\tghost", {"gone": 0})
    client.zadd(PREFIX + "turns:all", {"ghost": -1})
    end(store, "a")
    assert taken(store) == ["b"]


def test_a_script_that_is_interrupted_leaves_no_slot_too_few(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [FAIR[0], ("l all", b'{"most":2,"fair":true}')])
    make_of(store, "x", "a", "b", "c")
    assert taken(store) == ["a", "b"]
    make_of(store, "y", "d")
    assert taken(store) == []
    client.set(PREFIX + "grants", "what")
    with pytest.raises(ScriptFailed):
        end(store, "a", "b")
    client.delete(PREFIX + "grants")
    assert client.hget(PREFIX + "task:c", "slots") is None
    store.run(reconciling.sweep(Settings()))
    assert sorted(taken(store)) == ["c", "d"]
    assert client.hget(PREFIX + "task:c", "slots") == b"all"


def test_a_deleted_key_cancels_what_keeps_its_ordered_slot_for_a_retry(
    store: Store, client: redis.Redis
) -> None:
    declare(store, ORDERED)
    make(store, "a", "b")
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "t", "retry", delay=60))
    name = b"a:?mail.send?[1]"
    assert client.delete(name) == 1
    assert store.run(reconciling.find_unexplained([name], EventKind.DELETED)) == {name}
    hint = reconciling.KeyEvent(name, "a", b"mail.send?[1]", EventKind.DELETED)
    store.run(reconciling.adopt([hint], Settings()))
    assert members(client, "cancelled") == ["a"]
    assert taken(store) == ["b"]


@pytest.mark.parametrize(
    "fields",
    [
        [TWO_IN_ALL[0], ("l mail.send", b'{"most":1}')],
        [
            ("f mail.send", b'[["each",0,"to",null],["mail.send"]]'),
            ("l each", b'{"most":2}'),
            ("l mail.send", b'{"most":1,"fair":true}'),
        ],
    ],
)
def test_of_ticks_that_are_due_in_one_claim_the_last_waits(
    store: Store, client: redis.Redis, fields: list[Field]
) -> None:
    declare(store, fields)
    make(store, "a")
    assert taken(store) == ["a"]
    due_series(store, client)
    ticks = [f"s@{due}" for due in range(3)]
    for due, tick in enumerate(ticks):
        client.hset(f"{PREFIX}task:{tick}", mapping={"call": "mail.send?[1]", "tick": due})
        client.zadd(PREFIX + "pending", {tick: due})
    claim(store)
    claim(store)  # the last one has the slot that the one before it gave up
    [last] = members(client, "waiting")
    assert members(client, "queue:mail.send") == [last]
    assert len(members(client, "cancelled")) == 3
    assert client.hget(PREFIX + "series:s", "missed") == b"3"
    assert client.zscore(PREFIX + "lanes", "mail.send") == 2
    assert client.zscore(PREFIX + "lanes", "each=1") in {None, 2}
    assert store.run(reconciling.sweep(Settings())).mended == 0
    end(store, "a")
    assert taken(store) == [last]
