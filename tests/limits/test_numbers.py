"""Numbers that are set at run time, instead of those that handlers declare."""

from collections.abc import AsyncIterator, Sequence

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, InvalidTask, SetNumber
from expirebridge.checks.finding import Finding
from expirebridge.limits.calls import declare_limits
from expirebridge.limits.checks import check_limits, check_numbers
from expirebridge.limits.hold_calls import put_hold
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from tests.kit.colours import Ask, asking_one
from tests.kit.steps import PREFIX, claim, new, server_ms, settle

pytestmark = pytest.mark.servers("oldest")

NUMBERS = f"{PREFIX}:numbers"
EACH = [("f mail.send", b'[["each",0,"to",null]]'), ("l each", b'{"most":1}')]
ALL = [("f mail.send", b'[["all"]]'), ("l all", b'{"most":2}')]
BOTH = [
    ("f mail.send", b'[["each",0,"to",null],["all"]]'),
    ("l each", b'{"most":1}'), ("l all", b'{"most":2}'),
]  # fmt: skip
FAIR = [
    ("f mail.send", b'[["all",null,null,null,0,"to",null]]'), ("l all", b'{"most":1,"fair":true}')
]  # fmt: skip
ORDERED = [("f mail.send", b'[["line",0,"to",null]]'), ("l line", b'{"most":1,"ordered":true}')]


@pytest.fixture(params=[Bridge, AsyncBridge])
async def ask(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Ask]:
    async with asking_one(request.param(url)) as ask:
        yield ask


def declare(store: Store, fields: Sequence[tuple[str, bytes]], fingerprint: str = "aa") -> None:
    store.run(declare_limits(fingerprint, fields))


def make(store: Store, *ids: str, to: str = '"x"') -> None:
    """Make tasks that are due, each a millisecond after the one before."""
    due = server_ms(store.client) - 60_000
    call = f"mail.send?[{to}]".encode()
    store.run(
        producing.make([
            new(id, due + place, call=call, relative=False) for place, id in enumerate(ids)
        ])
    )  # fmt: skip


def taken(store: Store) -> list[str]:
    return [task.id for task in claim(store).tasks]


def end(store: Store, *ids: str) -> None:
    settle(store, *(Settlement(id, "t", "succeeded") for id in ids))


def sweep(store: Store) -> None:
    while store.run(reconciling.sweep(Settings())).more:
        pass


async def test_a_number_counts_instead_of_the_declared_one_at_the_next_claim(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, ALL)
    make(store, "a", "b", "c", "d", "e")
    await ask("set_limit", "all", 4)
    assert client.hgetall(NUMBERS) == {b"all": b"4"}
    assert taken(store) == ["a", "b", "c", "d"]
    await ask("set_limit", "all", None)
    assert not client.exists(NUMBERS)
    end(store, "a", "b")
    assert taken(store) == []
    end(store, "c")
    assert taken(store) == ["e"]


async def test_what_waits_is_served_at_once_by_a_raised_number(ask: Ask, store: Store) -> None:
    declare(store, ALL)
    make(store, "a", "b", "c", "d", "e")
    assert taken(store) == ["a", "b"]
    await ask("set_limit", "all", 4)
    # No sweep comes between.
    assert [task.id for task in (await ask("list", state="pending")).tasks] == ["c", "d"]
    assert taken(store) == ["c", "d"]


async def test_what_waits_is_served_when_a_number_is_taken_back(ask: Ask, store: Store) -> None:
    declare(store, ALL)
    await ask("set_limit", "all", 1)
    make(store, "a", "b", "c")
    assert taken(store) == ["a"]
    await ask("set_limit", "all", None)
    assert taken(store) == ["b"]


async def test_one_value_has_a_number_of_its_own(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, EACH)
    for to in ("acme", "beta"):
        make(store, *(f"{to}{number}" for number in range(8)), to=f'"{to}"')
    assert sorted(taken(store)) == ["acme0", "beta0"]
    await ask("set_limit", "each", 3, value="acme")
    assert client.hgetall(NUMBERS) == {b"each acme": b"3"}
    assert taken(store) == ["acme1", "acme2"]
    # That of a value counts, and not that of all.
    await ask("set_limit", "each", 2)
    assert taken(store) == ["beta1"]
    end(store, "acme0")
    assert taken(store) == ["acme3"]
    await ask("set_limit", "each", None, value="acme")
    end(store, "acme1", "acme2", "acme3")
    assert taken(store) == ["acme4", "acme5"]


@pytest.mark.parametrize(
    ("value", "argument", "field"),
    [
        (17, "17", b"each 17"), ("17", "17.0", b"each 17"), (None, '"x"', b"each"),
        ("a=b c", '"a=b c"', b"each a=b c"), ("", '""', b"each "), (True, "true", b"each true"),
        ("null", "null", b"each null"), ("é", '"\\u00e9"', "each é".encode()),
        ("x" * 101, f'"{"x" * 101}"', None),
    ],
)  # fmt: skip
async def test_a_value_is_that_of_the_argument(
    ask: Ask, store: Store, client: redis.Redis, value: object, argument: str, field: bytes | None
) -> None:
    declare(store, EACH)
    await ask("set_limit", "each", 2, value=value)
    if field is not None:
        assert client.hgetall(NUMBERS) == {field: b"2"}
    make(store, "a", "b", "c", to=argument)
    assert taken(store) == ["a", "b"]


async def test_what_runs_goes_on_after_a_lowered_number(ask: Ask, store: Store) -> None:
    declare(store, [ALL[0], ("l all", b'{"most":4}')])
    make(store, "a", "b", "c", "d", "e", "f")
    assert taken(store) == ["a", "b", "c", "d"]
    await ask("set_limit", "all", 2)
    end(store, "a", "b")
    sweep(store)
    assert taken(store) == []
    end(store, "c")
    assert taken(store) == ["e"]


async def test_a_number_is_kept_through_deploys(ask: Ask, store: Store) -> None:
    declare(store, ALL)
    await ask("set_limit", "all", 3)
    declare(store, [ALL[0], ("l all", b'{"most":1}')], "bb")
    make(store, "a", "b", "c", "d")
    assert taken(store) == ["a", "b", "c"]
    # It is there for a limit that is gone, and comes again.
    declare(store, [("f mail.send", b"[]")], "cc")
    sweep(store)
    assert taken(store) == ["d"]
    declare(store, ALL, "dd")
    [limit] = (await ask("limits")).limits
    assert (limit.most, limit.declared) == (3, 2)


@pytest.mark.parametrize("fields", [EACH, ALL, BOTH, FAIR])
def test_a_plain_hset_counts_at_once_for_new_tasks_and_with_a_sweep_for_those_that_wait(
    store: Store, client: redis.Redis, fields: list[tuple[str, bytes]]
) -> None:
    declare(store, fields)
    name = fields[-1][0].removeprefix("l ")
    other = {"all": "each", "each": "all"}[name] if fields is BOTH else name
    ids = [f"a{number:02}" for number in range(12)]
    make(store, *ids)
    most = len(taken(store))
    client.hset(NUMBERS, mapping={name: 5, other: 5})
    sweep(store)
    assert most + len(taken(store)) == 5
    client.hset(NUMBERS, mapping={name: 7, f"{other}": 7})
    sweep(store)
    assert len(taken(store)) == 2
    client.delete(NUMBERS)
    make(store, "z")
    assert taken(store) == []


def test_a_plain_hset_finds_its_lane_among_many_in_one_sweep(
    store: Store, client: redis.Redis
) -> None:
    declare(store, EACH)
    for number in range(300):
        make(store, f"a{number:03}", f"b{number:03}", to=f"{number}")
    while claim(store, places=1000).parked:
        pass
    sweep(store)
    for number in (7, 150, 299):
        client.hset(NUMBERS, f"each {number}", 2)
        sweep(store)
        assert taken(store) == [f"b{number:03}"]
    # What has changed nothing makes no sweep look at all of them.
    assert not store.run(reconciling.sweep(Settings())).more
    client.hset(NUMBERS, "each", 2)
    sweep(store)
    assert len(taken(store)) == 100


async def test_of_two_limits_each_has_its_number(ask: Ask, store: Store) -> None:
    declare(store, BOTH)
    for to in "xy":
        make(store, *(f"{to}{number}" for number in range(4)), to=f'"{to}"')
    assert sorted(taken(store)) == ["x0", "y0"]
    await ask("set_limit", "each", 2)
    assert taken(store) == []
    await ask("set_limit", "all", 3)
    assert taken(store) == ["x1"]
    await ask("set_limit", "all", 9)
    assert taken(store) == ["y1"]


async def test_tenants_take_turns_at_a_number_that_was_set(ask: Ask, store: Store) -> None:
    declare(store, FAIR)
    make(store, "h0", "h1", "h2", "h3", to='"heavy"')
    make(store, "l0", "l1", to='"light"')
    await ask("set_limit", "all", 2)
    first = taken(store)
    assert len(first) == 2
    end(store, *first)
    assert sorted(id[0] for id in taken(store)) == ["h", "l"]


async def test_a_number_of_an_ordered_limit_is_refused_and_that_of_another_client_ignored(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, ORDERED)
    for value in (None, "x"):
        with pytest.raises(InvalidTask, match="number=2: tasks of 'line' run in order"):
            await ask("set_limit", "line", 2, value=value)
    await ask("set_limit", "line", 1)
    client.hset(NUMBERS, mapping={"line": 3, "line x": 0})
    make(store, "a", "b")
    assert taken(store) == ["a"]
    end(store, "a")
    assert taken(store) == ["b"]
    assert [one.ignored for one in (await ask("limits")).numbers] == [
        "its tasks run in order, one at a time"
    ] * 2


async def test_a_number_of_0_by_hand_stops_the_lane(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, EACH)
    client.hset(NUMBERS, "each acme", "0")
    make(store, "a", to='"acme"')
    make(store, "b", to='"beta"')
    assert taken(store) == ["b"]
    reason = await ask("why", "a")
    assert reason.text.startswith("waits for a slot of each=acme: 0 of 0 taken (declared: 1)")
    sweep(store)
    assert taken(store) == []
    await ask("set_limit", "each", None, value="acme")
    assert taken(store) == ["a"]


GARBAGE = [
    "",
    " 5",
    "5.0",
    "-1",
    "+5",
    "1e3",
    "many",
    "0x10",
    "1000001",
    "99999999999",
    "5\n",
    "nan",
]


@pytest.mark.parametrize("stored", GARBAGE)
def test_garbage_by_hand_is_ignored_and_the_doctor_says_so(
    store: Store, bridge: Bridge, client: redis.Redis, stored: str
) -> None:
    declare(store, EACH)
    client.hset(NUMBERS, mapping={"each": stored, "each x": stored})
    make(store, "a", "b")
    assert taken(store) == ["a"]
    sweep(store)
    assert taken(store) == []
    assert [(one.number, one.ignored) for one in bridge.limits().numbers] == [
        (None, "it can have no such number")
    ] * 2
    finding = checked(store)
    assert finding.level == "warning"
    assert finding.message.startswith("set, and ignored: each to ")
    assert finding.remedy == "HDEL expirebridge:numbers each"
    # A garbage of one value leaves that of all.
    client.hset(NUMBERS, "each", 2)
    sweep(store)
    assert taken(store) == ["b"]


@pytest.mark.parametrize("number", [0, -1, 1_000_001, 2_000_000_000, 1.5, "5", True, "many"])
async def test_a_number_that_cannot_be_is_refused(
    ask: Ask, store: Store, client: redis.Redis, number: object
) -> None:
    declare(store, ALL)
    with pytest.raises(InvalidTask, match=r"^number=.*a whole number, 1 to 1,000,000 "):
        await ask("set_limit", "all", number)
    assert not client.exists(NUMBERS)


@pytest.mark.parametrize("fields", [[], [("l each", b"{}")], [("l each", b"what")]])
async def test_a_limit_that_nobody_declares_is_named(
    ask: Ask, store: Store, client: redis.Redis, fields: list[tuple[str, bytes]]
) -> None:
    declare(store, fields)
    for number in (5, None):
        with pytest.raises(InvalidTask, match="limit='each': no handler of a listener has a limit"):
            await ask("set_limit", "each", number, value="x")
    client.hset(NUMBERS, "each x", 5)
    found = await ask("limits")
    assert found.numbers == [
        SetNumber(
            limit="each", value="x", number=None, declared=None, stored="5",
            ignored="no handler has such a limit",
        )
    ]  # fmt: skip
    assert checked(store).message == ("set, and ignored: each=x to 5: no handler has such a limit")
    # It is taken back, whatever became of its limit.
    await ask("set_limit", "each", None, value="x")
    assert not client.exists(NUMBERS)


def test_a_limit_in_a_database_without_any_is_named(bridge: Bridge, client: redis.Redis) -> None:
    for number in (5, None):
        with pytest.raises(InvalidTask, match="limit='each': no handler of a listener has a limit"):
            bridge.set_limit("each", number)
    client.hset(NUMBERS, "each", 5)
    assert [one.ignored for one in bridge.limits().numbers] == ["no handler has such a limit"]


async def test_a_value_of_a_limit_with_one_lane_is_refused(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, ALL)
    with pytest.raises(InvalidTask, match="value='x': 'all' has one lane for all values"):
        await ask("set_limit", "all", 5, value="x")
    client.hset(NUMBERS, "all x", 5)
    make(store, "a", "b", "c")
    assert taken(store) == ["a", "b"]
    assert [one.ignored for one in (await ask("limits")).numbers] == [
        "it has one lane for all values"
    ]


def test_a_number_gives_no_slot_to_a_limit_whose_declaration_was_lost(
    store: Store, client: redis.Redis
) -> None:
    declare(store, ALL)
    client.hset(NUMBERS, "all", 5)
    client.hdel(f"{PREFIX}:limits", "l all")
    make(store, "a")
    assert taken(store) == []
    declare(store, ALL, "bb")
    sweep(store)
    assert taken(store) == ["a"]


def test_numbers_that_were_overwritten_stop_nobody(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    declare(store, ALL)
    client.set(NUMBERS, "x")
    make(store, "a", "b", "c")
    assert taken(store) == ["a", "b"]
    sweep(store)
    assert bridge.limits().numbers == []
    bridge.set_limit("all", 3)
    assert client.hgetall(NUMBERS) == {b"all": b"3"}
    assert taken(store) == ["c"]


async def test_a_hold_and_a_number(ask: Ask, store: Store, client: redis.Redis) -> None:
    """Both are asked for together; each counts without the other, and beside it."""
    declare(store, ALL)
    await ask("set_limit", "all", 3)
    store.run(put_hold("func other.call", until=None, reason="", by=""))
    make(store, "a", "b", "c", "d")
    assert taken(store) == ["a", "b", "c"]
    await ask("set_limit", "all", None)
    end(store, "a", "b")
    assert taken(store) == ["d"]
    await ask("hold", all=True)
    make(store, "e")
    end(store, "c")
    await ask("set_limit", "all", 5)
    assert taken(store) == []
    await ask("release", all=True)
    assert taken(store) == ["e"]


# Rates and budgets: the number is how many start, or how much is spent, in the declared time.

HOUR = 3_600_000_000
"""In microseconds."""


def pace(numbers: str, *, cost: bool = False) -> list[tuple[str, bytes]]:
    """A rate or a budget for each value of the first argument; the second is the cost."""
    entry = '["pace",0,"to",null' + (',null,null,null,1,"n",null]' if cost else "]")
    return [("f mail.send", f"[{entry}]".encode()), ("l pace", numbers.encode())]


RATE = pace(f'{{"starts":1,"every":{HOUR},"burst":1}}')
BURST = pace(f'{{"starts":1,"every":{HOUR},"burst":2}}')
BUDGET = pace(f'{{"starts":10,"every":{HOUR},"of":"n"}}', cost=True)
BUDGET_WITH_BURST = pace(f'{{"starts":10,"every":{HOUR},"of":"n","burst":10}}', cost=True)


async def test_a_raised_rate_lets_those_go_that_wait(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, RATE)
    make(store, "a", "b", "c")
    assert taken(store) == ["a"]
    sweep(store)
    await ask("set_limit", "pace", 1_000_000)
    # The first of them has its start in an hour. It goes first nevertheless, also if time passes
    # before a sweep sees it.
    raised = server_ms(client)
    while server_ms(client) < raised + 10:
        pass
    sweep(store)
    while not (found := taken(store)):
        pass  # its start is due in 4 ms
    assert found == ["b"]


async def test_a_lowered_rate_starts_no_more_than_it_allows(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, pace('{"starts":1000000,"every":1000000,"burst":1}'))
    await ask("set_limit", "pace", 1, value="x")
    make(store, "a", "b", "c")
    make(store, "d", to='"y"')
    assert sorted(taken(store)) == ["a", "d"]
    arrival = client.zscore(f"{PREFIX}:rates", "pace=x")
    assert arrival is not None
    assert arrival == pytest.approx(server_ms(client) * 1000 + 1_000_000, abs=500_000)
    assert (await ask("why", "b")).text.startswith(
        "waits for a start of pace=x: one start every 1s"
    )


@pytest.mark.parametrize(
    ("fields", "number", "at_once"),
    [
        # A rate keeps its burst, and so does a budget that has one of its own.
        (BURST, 100, 2), (BUDGET_WITH_BURST, 30, 2), (BUDGET, 30, 6), (BUDGET, 5, 1),
        (BUDGET, 1_000_000_000, 7),
    ],
)  # fmt: skip
async def test_the_burst_of_a_rate_stays_and_that_of_a_budget_follows(
    ask: Ask, store: Store, fields: list[tuple[str, bytes]], number: int, at_once: int
) -> None:
    declare(store, fields)
    await ask("set_limit", "pace", number)
    make(store, *(f"a{place}" for place in range(7)), to='"x",5')
    assert len(taken(store)) == at_once


@pytest.mark.parametrize("fields", [RATE, BURST, BUDGET, BUDGET_WITH_BURST])
def test_0_by_hand_stops_a_rate(
    store: Store, bridge: Bridge, client: redis.Redis, fields: list[tuple[str, bytes]]
) -> None:
    declare(store, fields)
    client.hset(NUMBERS, "pace x", 0)
    make(store, "a", to='"x",5')
    make(store, "b", to='"y",5')
    assert taken(store) == ["b"]
    sweep(store)
    reason = bridge.why("a")
    assert reason is not None
    assert reason.text.startswith("waits for a slot of pace=x: 0 of 0 taken (declared: 1")
    bridge.limits()
    client.delete(NUMBERS)
    sweep(store)
    assert client.zcard(f"{PREFIX}:waiting") == 0
    while not (found := taken(store)):
        pass  # its start is due in the next ms
    assert found == ["a"]


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        (RATE, 1_000_001), (BUDGET, 1_000_000_001), (pace('{"starts":1,"every":1000}'), 1001),
        # Its burst would take over a hundred years.
        (pace(f'{{"starts":1000000,"every":{24 * HOUR},"burst":1000000}}'), 20),
    ],
)  # fmt: skip
async def test_a_number_that_a_rate_cannot_have_is_refused_and_by_hand_ignored(
    ask: Ask, store: Store, client: redis.Redis, fields: list[tuple[str, bytes]], number: int
) -> None:
    declare(store, fields)
    with pytest.raises(InvalidTask, match=f"number={number}: "):
        await ask("set_limit", "pace", number)
    client.hset(NUMBERS, "pace", number)
    assert [one.ignored for one in (await ask("limits")).numbers] == ["it can have no such number"]
    make(store, "a", to='"x",5')
    assert taken(store) == ["a"]


async def test_a_rate_s_number_is_shown_beside_the_declared_one(ask: Ask, store: Store) -> None:
    declare(store, [*RATE, ("l tokens", b'{"starts":10,"every":60000000,"of":"n"}'),
                    ("f mail.ask", b'[["tokens"]]')])  # fmt: skip
    await ask("set_limit", "pace", 60)
    await ask("set_limit", "tokens", 2_000)
    found = await ask("limits")
    assert [str(one) for one in found.limits] == [
        "one start every 1m, declared 1", "2,000 n in 1m, declared 10"
    ]  # fmt: skip
    assert [(one.lane, one.number, one.declared) for one in found.numbers] == [
        ("pace", 60, 1), ("tokens", 2000, 10)
    ]  # fmt: skip
    make(store, "a", "b")
    taken(store)
    reason = await ask("why", "b")
    assert "one start every 1m, declared 1" in reason.text


# What shows them.


def checked(store: Store) -> Finding:
    """What the doctor says of numbers."""
    finding = store.run(check_numbers("expirebridge"))
    assert finding is not None
    return finding


async def test_numbers_are_listed_beside_the_declared_ones(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    declare(store, BOTH)
    assert (await ask("limits")).numbers == []
    assert store.run(check_numbers("expirebridge")) is None
    await ask("set_limit", "all", 20)
    await ask("set_limit", "each", 7, value="x")
    make(store, "a", "b")
    make(store, "c", to='"y"')
    taken(store)
    found = await ask("limits")
    assert [(one.lane, one.number, one.declared, one.ignored) for one in found.numbers] == [
        ("all", 20, 2, ""), ("each=x", 7, 1, "")
    ]  # fmt: skip
    assert [(one.name, one.most, one.declared) for one in found.limits] == [
        ("all", 20, 2), ("each", 1, None)
    ]  # fmt: skip
    assert [str(one) for one in found.limits] == ["20 at once, declared 2", "1 at once"]
    assert {
        lane.name: (lane.limit.most, lane.limit.declared) for lane in found.lanes if lane.limit
    } == {"all": (20, 2), "each=x": (7, 1), "each=y": (1, None)}
    finding = checked(store)
    assert (finding.level, finding.message) == (
        "ok", "set instead of declared ones: all to 20 (declared: 2), each=x to 7 (declared: 1)"
    )  # fmt: skip
    assert store.run(check_limits(10)) is not None


async def test_why_has_the_number_beside_the_declared_one(ask: Ask, store: Store) -> None:
    declare(store, EACH)
    await ask("set_limit", "each", 2, value="x")
    make(store, "a", "b", "c")
    taken(store)
    reason = await ask("why", "c")
    assert reason.text.startswith("waits for a slot of each=x: 2 of 2 taken (declared: 1), 1st")
    task = await ask("get", "c")
    assert (task.queued.limit.most, task.queued.limit.declared) == (2, 1)


def test_the_doctor_warns_of_a_lane_that_0_stops(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    declare(store, EACH)
    client.hset(NUMBERS, "each a b", 0)
    finding = checked(store)
    assert finding.level == "warning"
    assert finding.message == "set to 0, so that nothing starts: each=a b"
    assert "expirebridge hold" in finding.remedy
    assert "expirebridge limit each --value 'a b' --declared" in finding.remedy
