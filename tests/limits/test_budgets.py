"""Budgets in the scripts: what tasks cost, several rates of one task, and what an attempt spent."""

import json
from itertools import count
from typing import Any

import pytest
import redis

from expirebridge import Change
from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import editing, producing, reconciling
from expirebridge.task.calls.claiming import Settled, Settlement
from tests.kit.steps import claim, new, server_ms, settle
from tests.machine.world import age

pytestmark = pytest.mark.servers("oldest")

PREFIX = "expirebridge:"
PLACES = count()
MINUTE, HOUR = 60_000_000, 3_600_000_000
PER_KEY = ["key#tokens", 0, "key", None, None, None, None, 1, "tokens", 7]
"""The tokens of a key; a task without the argument costs 7."""
TOTAL = ["tokens", None, None, None, None, None, None, 1, "tokens", 7]
ANSWERS = ["answers", 0, "key", None]


def budget(amount: int, every: int = MINUTE, **more: object) -> dict[str, object]:
    return {"starts": amount, "every": every, "of": "tokens"} | more


def declare(store: Store, entries: list[object], **limits: dict[str, object]) -> None:
    named = {name.replace("_", "#"): numbers for name, numbers in limits.items()}
    fields = {"f llm.ask": entries, **{f"l {name}": numbers for name, numbers in named.items()}}
    declaration = [(name, json.dumps(value).encode()) for name, value in fields.items()]
    store.run(declare_limits("aa", declaration))


def make(store: Store, *ids: str, args: str) -> None:
    """Make tasks that are due, each a millisecond before the next, and before all made later."""
    for id in ids:
        store.run(producing.make([new(id, next(PLACES) - 10_000, call=f"llm.ask?{args}".encode())]))


def taken(store: Store, token: str = "t") -> list[str]:
    return [task.id for task in claim(store, token).tasks]


def taken_in(client: redis.Redis, store: Store, seconds: int) -> list[str]:
    """What begins in so many seconds, a claim in each."""
    found: list[str] = []
    for _ in range(seconds):
        age(client, 1)
        found += taken(store)
    return found


def field(client: redis.Redis, id: str, name: str) -> str:
    """A field of a task's record; empty if it is not there."""
    value: Any = client.hget(f"{PREFIX}task:{id}", name)
    return "" if value is None else str(value.decode())


def slots_of(client: redis.Redis, id: str) -> list[str]:
    return field(client, id, "slots").split()


def takes(client: redis.Redis, id: str) -> int:
    """The microseconds that a task was charged."""
    return int(field(client, id, "charged").split()[2])


def spent_us(client: redis.Redis, lane: str) -> float:
    """The microseconds from now until all of a lane is there again."""
    seconds, micro = client.time()
    return (client.zscore(PREFIX + "rates", lane) or 0.0) - (seconds * 1_000_000 + micro)


def test_tasks_begin_as_long_as_the_budget_has_room_for_what_they_cost(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [PER_KEY], key_tokens=budget(6000))
    make(store, "a", "b", args='["k",2500]')
    make(store, "c", args='["k",1500]')
    make(store, "d", args='["other",6000]')
    assert taken(store) == ["a", "b", "d"]
    assert field(client, "c", "queue") == ""  # it was granted its start, five seconds from now
    assert taken_in(client, store, 4) == []
    assert taken_in(client, store, 2) == ["c"]


@pytest.mark.parametrize("amount", [2_000_000, 3_000_000, 7])
def test_a_charge_is_exact(store: Store, client: redis.Redis, amount: int) -> None:
    declare(store, [TOTAL], tokens=budget(amount))
    cost = min(amount, 1_000_003)
    make(store, "a", args=f'["k",{cost}]')
    assert taken(store) == ["a"]
    assert takes(client, "a") == -(-cost * MINUTE // amount)


@pytest.mark.parametrize(
    ("args", "cost"),
    [
        ('["k",250]', 250), ('["k",0]', 0), ('["k",1.5]', 2), ('["k",250.0]', 250),
        ('["k",2.5e2]', 250), ('["k","250"]', 250), ('{"tokens":3,"key":"k"}', 3),
        ('{"tokens":3,"tokens":4}', 4), ('["k"]', 7), ("[]", 7), ("{}", 7),
        # What nobody can read is the whole burst, and so is what is more.
        ('["k",-1]', 1000), ('["k",-1.5]', 1000), ('["k","-"]', 1000), ('["k",null]', 1000),
        ('["k",true]', 1000), ('["k",[250]]', 1000), ('["k",{"a":1}]', 1000), ('["k",1e400]', 1000),
        ('["k",1e-400]', 0), ('["k","0x10"]', 1000), ('["k","nan"]', 1000), ('["k",""]', 1000),
        ('["k",1001]', 1000), ('["k",99999999999999999999999999]', 1000), ('["k",1000]', 1000),
        ('["' + "-" * 60_000 + '",250]', 250), ('{"key":"' + "-" * 60_000 + '","tokens":250}', 250),
        # Sealed: their producer wrote the values behind them.
        ('x:sealed {"tokens":"250"}', 250), ("x:sealed", 1000), ('x:sealed {"key":"k"}', 1000),
    ],
)  # fmt: skip
def test_a_cost_is_read(store: Store, client: redis.Redis, args: str, cost: int) -> None:
    declare(store, [TOTAL], tokens=budget(1000))
    is_long = len(args) > 1000 or args.startswith("x:")
    fields = {"args": args} if is_long else {}
    call = f"llm.ask?{'@' if is_long else args}".encode()
    store.run(producing.make([new("a", -1, call=call, fields=fields)]))
    assert taken(store) == ["a"]
    assert takes(client, "a") == cost * MINUTE / 1000


def test_what_waits_keeps_what_was_found_in_its_arguments(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [PER_KEY], key_tokens=budget(100, HOUR))
    make(store, "a", args='["k",100]')
    make(store, "b", args='["k",80]')
    make(store, "c", args='["k",20]')
    assert taken(store) == ["a"]
    assert field(client, "c", "lanes").split("\n")[1:] == ["key#tokens=k\t\t20"]
    # Another cost counts from the change on.
    before = store.run(editing.read_task("c"))
    assert store.run(editing.edit("c", before, b'["k",90]')) is Change.EDITED
    assert taken(store) == []
    assert field(client, "c", "lanes").split("\n")[1:] == ["key#tokens=k\t\t90"]


def test_a_task_takes_its_rates_one_after_the_other(store: Store, client: redis.Redis) -> None:
    declare(
        store, [PER_KEY, ANSWERS], key_tokens=budget(100, HOUR),
        answers={"starts": 1, "every": MINUTE, "burst": 1},
    )  # fmt: skip
    make(store, "a", "b", "c", args='["k",40]')
    assert taken(store) == ["a"]
    # It has its tokens, waits for an answer, and is in no later lane.
    assert taken(store) == []
    assert slots_of(client, "b") == ["key#tokens=k", "answers=k"]
    assert "answers=k" not in slots_of(client, "c")
    assert taken_in(client, store, 61) == ["b"]
    # What it reserved it has been charged for, once, and in both.
    assert spent_us(client, "key#tokens=k") == pytest.approx(0.8 * HOUR - 61_000_000, abs=2e6)
    age(client, 600)
    assert taken_in(client, store, 70) == ["c"]


def test_a_reservation_is_not_given_to_another(store: Store, client: redis.Redis) -> None:
    declare(
        store, [PER_KEY, ANSWERS], key_tokens=budget(100, HOUR),
        answers={"starts": 1, "every": HOUR, "burst": 1},
    )  # fmt: skip
    make(store, "a", args='["k",10]')
    make(store, "b", args='["k",60]')
    assert taken(store) == ["a"]
    assert taken(store) == []
    # Another function that has the tokens alone finds 30 of them.
    fields = [("f llm.count", json.dumps([PER_KEY]).encode())]
    store.run(declare_limits("bb", fields))
    store.run(producing.make([new("d", -1, call=b'llm.count?["k",31]')]))
    store.run(producing.make([new("e", -1, call=b'llm.count?["other",31]')]))
    assert taken(store) == ["e"]
    assert taken_in(client, store, 40) == ["d"]


def test_what_waits_in_a_lane_that_rests_holds_up_no_rate_before_it(
    store: Store, client: redis.Redis
) -> None:
    declare(
        store, [PER_KEY, ANSWERS], key_tokens=budget(100, HOUR),
        answers={"starts": 60, "every": MINUTE, "burst": 1},
    )  # fmt: skip
    store.run(declare_limits("bb", [("f llm.count", json.dumps([PER_KEY]).encode())]))
    make(store, "a", "b", args='["k",20]')
    store.run(producing.make([new("c", -1, call=b'llm.ask?["k",30]')]))
    assert taken(store) == ["a"]
    store.run(producing.make([new("d", -1, call=b'llm.count?["k",51]')]))
    assert taken(store) == taken(store) == []
    assert (slots_of(client, "c"), field(client, "c", "queue")) == (["key#tokens=k"], "answers=k")
    # The first lets the answers rest: the second, whose start had been granted, has nothing then.
    assert tell(store, "a", "busy", "answers", delay=3000) is Settled.DONE
    assert taken_in(client, store, 3) == []
    assert "key#tokens=k" not in slots_of(client, "b")
    store.run(reconciling.sweep(Settings()))
    assert "key#tokens=k" not in slots_of(client, "c")
    assert taken(store) == ["d"]


def test_a_sweep_brings_no_start_before_what_others_have_reserved(
    store: Store, client: redis.Redis
) -> None:
    declare(
        store, [PER_KEY, ANSWERS], key_tokens=budget(100, HOUR),
        answers={"starts": 1, "every": HOUR, "burst": 1},
    )  # fmt: skip
    make(store, "a", args='["k",10]')
    make(store, "b", args='["k",60]')
    assert taken(store) == ["a"]
    assert taken(store) == []
    store.run(declare_limits("bb", [("f llm.count", json.dumps([PER_KEY]).encode())]))
    store.run(producing.make([new("d", -1, call=b'llm.count?["k",80]')]))
    assert taken(store) == []
    store.run(reconciling.sweep(Settings()))
    assert taken_in(client, store, 3) == []
    assert slots_of(client, "d") == ["key#tokens=k"]


def test_what_waits_for_a_slot_has_paid_and_holds_up_no_rate(
    store: Store, client: redis.Redis
) -> None:
    declare(
        store, [PER_KEY, ANSWERS, ["one", 2, "who", None]], key_tokens=budget(100, MINUTE),
        answers={"starts": 60, "every": MINUTE, "burst": 1}, one={"most": 1},
    )  # fmt: skip
    make(store, "a", "b", "c", args='["k",10,"slow"]')
    assert taken(store) == ["a"]
    make(store, "d", "e", args='["k",10,"other"]')
    assert set(taken_in(client, store, 10)) == {"d"}
    settle(store, Settlement("d", "t", "succeeded"))
    assert set(taken_in(client, store, 10)) == {"e"}
    settle(store, Settlement("a", "t", "succeeded"))
    assert taken_in(client, store, 10) == ["b"]


# What an attempt tells


def tell(
    store: Store, id: str, outcome: str, told: str, token: str = "t", delay: float = 0.0
) -> Settled:
    [settled] = settle(store, Settlement(id, token, outcome, delay, "", told))
    return settled


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "retry", "snoozed", "released"])
def test_what_was_spent_beyond_the_cost_is_charged(
    store: Store, client: redis.Redis, outcome: str
) -> None:
    declare(store, [PER_KEY], key_tokens=budget(100, HOUR))
    make(store, "a", args='["k",10]')
    assert taken(store) == ["a"]
    for _ in range(2):  # the second time it is a resend
        assert tell(store, "a", outcome, "key#tokens+30", delay=7200) is Settled.DONE
    assert spent_us(client, "key#tokens=k") == pytest.approx(0.4 * HOUR, abs=2e6)


def test_more_than_all_is_a_debt(store: Store, client: redis.Redis) -> None:
    declare(store, [PER_KEY], key_tokens=budget(3600, HOUR))
    make(store, "a", args='["k",10]')
    assert taken(store) == ["a"]
    assert tell(store, "a", "succeeded", "key#tokens+7190") is Settled.DONE
    make(store, "b", args='["k",10]')
    assert taken(store) == []
    age(client, 3600)
    assert taken_in(client, store, 5) == []
    assert taken_in(client, store, 10) == ["b"]


@pytest.mark.parametrize(("spent", "keeps"), [(150, True), (250, False)])
def test_a_debt_that_is_soon_paid_takes_no_reservation(
    store: Store, client: redis.Redis, spent: int, keeps: bool
) -> None:
    """While the lane is full each attempt leaves one: those behind would overtake in `answers`."""
    declare(
        store, [ANSWERS, PER_KEY], key_tokens=budget(100),
        answers={"starts": 5, "every": 24 * HOUR, "burst": 5},
    )  # fmt: skip
    make(store, "a", "b", args='["k",100]')
    assert taken(store) == ["a"]
    assert taken(store) == []
    assert "answers=k" in slots_of(client, "b")
    age(client, 59)
    tell(store, "a", "succeeded", f"key#tokens+{spent}")
    age(client, 2)
    assert taken(store) == []
    assert ("answers=k" in slots_of(client, "b")) is keeps
    store.run(reconciling.sweep(Settings()))
    assert ("answers=k" in slots_of(client, "b")) is keeps


def test_a_lapsed_attempt_is_charged_once_for_what_it_spent(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [PER_KEY], key_tokens=budget(100, HOUR))
    make(store, "a", args='["k",10]')
    assert taken(store, "t") == ["a"]
    client.zadd(PREFIX + "running", {"a": 0})
    client.hset(f"{PREFIX}task:a", "token", "another")
    for _ in range(2):
        assert tell(store, "a", "succeeded", "key#tokens+30") is Settled.REFUSED
    assert spent_us(client, "key#tokens=k") == pytest.approx(0.4 * HOUR, abs=2e6)


def test_a_start_that_did_not_happen_is_taken_back(store: Store, client: redis.Redis) -> None:
    declare(store, [PER_KEY], key_tokens=budget(100, HOUR))
    make(store, "a", args='["k",60]')
    make(store, "b", args='["k",41]')
    assert taken(store) == ["a"]
    assert tell(store, "a", "snoozed", "!", delay=7200) is Settled.DONE
    assert spent_us(client, "key#tokens=k") <= 0
    assert field(client, "b", "queue") == ""


def test_a_charge_of_an_attempt_before_is_not_taken_back(store: Store, client: redis.Redis) -> None:
    declare(store, [PER_KEY], key_tokens=budget(100, HOUR))
    make(store, "a", args='["k",60]')
    assert taken(store) == ["a"]
    assert tell(store, "a", "snoozed", "") is Settled.DONE
    before = server_ms(client)
    while server_ms(client) == before:  # the next start is in another millisecond
        pass
    store.run(declare_limits("bb", [("f llm.ask", b"[]")]))
    assert taken(store, "u") == ["a"]
    store.run(declare_limits("cc", [("f llm.ask", json.dumps([PER_KEY]).encode())]))
    store.run(declare_limits("cc", [("l key#tokens", json.dumps(budget(100, HOUR)).encode())]))
    assert tell(store, "a", "snoozed", "!", token="u", delay=7200) is Settled.DONE
    assert spent_us(client, "key#tokens=k") == pytest.approx(0.6 * HOUR, abs=3e6)


def test_it_is_not_taken_back_when_another_was_charged_since(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [PER_KEY], key_tokens=budget(100, HOUR))
    make(store, "a", args='["k",60]')
    make(store, "b", args='["k",30]')
    assert taken(store) == ["a", "b"]
    assert tell(store, "a", "snoozed", "!", delay=7200) is Settled.DONE
    assert spent_us(client, "key#tokens=k") == pytest.approx(0.9 * HOUR, abs=2e6)


def lanes_that_rest(client: redis.Redis) -> set[str]:
    names: Any = client.zrange(PREFIX + "rates", 0, -1)
    return {name.decode().removeprefix("rest ") for name in names if name.startswith(b"rest ")}


def test_several_rates_rest_and_the_task_is_first_in_each(
    store: Store, client: redis.Redis
) -> None:
    declare(
        store, [PER_KEY, ANSWERS], key_tokens=budget(100, MINUTE),
        answers={"starts": 60, "every": MINUTE, "burst": 5},
    )  # fmt: skip
    make(store, "a", args='["k",10]')
    make(store, "b", "c", args='["k",10]')
    assert taken(store)[:1] == ["a"]
    assert tell(store, "a", "busy", "key#tokens,answers", delay=60) is Settled.DONE
    assert lanes_that_rest(client) == {"key#tokens=k", "answers=k"}
    found = taken_in(client, store, 100)
    assert found[0] == "a"


def test_what_costs_nothing_does_not_start_in_a_lane_that_rests(
    store: Store, client: redis.Redis
) -> None:
    declare(store, [PER_KEY], key_tokens=budget(10, HOUR))
    make(store, "a", args='["k",1]')
    assert taken(store) == ["a"]
    assert tell(store, "a", "busy", "key#tokens", delay=60) is Settled.DONE
    make(store, "b", args='["k",0]')
    assert taken(store) == []
    age(client, 55)
    assert taken(store) == []
    assert "b" in taken_in(client, store, 10)


# What another client wrote

WRITTEN = [
    "", "\n", "-", "nan", "-1", "1e400", "x key#tokens=k", "nan key#tokens=k\n- answers=k",
    "-1e9 key#tokens=k",
    "\t\tnan", "key#tokens=k\t\tnan", "key#tokens=k\t\t-5\nanswers=k\t\t\nmore\t\t1",
    "1 2 3\n" * 2000, "\nkey#tokens=k\t\t" + "9" * 400,
]  # fmt: skip


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("name", ["lanes", "charged", "spent", "turn"])
def test_no_script_stops_at_what_another_client_wrote(
    store: Store, client: redis.Redis, name: str, written: str
) -> None:
    declare(
        store, [PER_KEY, ANSWERS], key_tokens=budget(100, HOUR),
        answers={"starts": 60, "every": MINUTE, "burst": 1},
    )  # fmt: skip
    make(store, "a", "b", "c", args='["k",40]')
    assert taken(store) == ["a"]
    known = field(client, "b", "lanes").split("\n")[0]
    # What is not theirs, and what begins as if it were.
    begins = {"lanes": f"{known}\n", "charged": f"{field(client, 'a', 'started')}\n0 "}

    def write(value: str) -> None:
        for id in "abc":
            client.hset(f"{PREFIX}task:{id}", name, value)
        client.zrem(f"{PREFIX}rates", "key#tokens=k")

    for value in (begins.get(name, "") + written, written):
        write(value)
        taken(store)
        store.run(reconciling.sweep(Settings()))
        write(value)
        for id in "abc":
            for token in ("t", "another"):
                settle(store, Settlement(id, token, "snoozed", 1, "", "!,key#tokens+1,answers"))


@pytest.mark.parametrize("amount", [1, 1_000_000_000])
def test_a_debt_of_many_years_stops_no_script(
    store: Store, client: redis.Redis, amount: int
) -> None:
    declare(store, [PER_KEY], key_tokens=budget(1, 100 * 365 * 24 * HOUR))
    make(store, "a", args='["k",1]')
    assert taken(store) == ["a"]
    for _ in range(2):
        tell(store, "a", "succeeded", f"key#tokens+{amount}", token="lost")
    make(store, "b", "c", args='["k",1]')
    assert taken(store) == []
    store.run(reconciling.sweep(Settings()))
    make(store, "d", args='["other",1]')
    assert taken(store) == ["d"]
