"""A claim takes no more than its listener's share, and nothing is left for long."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from expirebridge import AsyncBridge
from expirebridge.hooks import Started
from expirebridge.listener.listener import Listener
from expirebridge.listener.partition import due_timer, fair_share
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, producing
from expirebridge.task.calls import fleet as fleet_commands
from expirebridge.task.calls.call import new_nonce
from expirebridge.task.calls.claiming import Claim, FairShareInput, Settlement, Walk
from tests.kit.patience import PATIENCE
from tests.kit.steps import beat_without_code, new
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

WHOLE = (Walk(b"-inf", b"", b"+inf"),)
SEND, RATE = b"mail.send?[]", b"orders.rate?[]"


def make(store: Store, count: int, call: bytes = SEND, name: str = "t") -> None:
    store.run(producing.make([new(f"{name}{n}", call=call) for n in range(count)]))


def claim(
    store: Store, share: FairShareInput | None, *, places: int = 50, idle: bool = False
) -> Claim:
    call = claiming.claim(new_nonce(), Settings(), places=places, idle=idle, share=share)
    return store.run(call)


def taken(store: Store, share: FairShareInput | None, *, places: int = 50) -> tuple[int, bool]:
    """How many tasks a claim took, and whether it left some to others."""
    answer = claim(store, share, places=places)
    return len(answer.tasks), answer.shared


# The script


def test_two_listeners_divide_twenty_tasks(store: Store) -> None:
    make(store, 20)
    assert taken(store, FairShareInput(2, 0)) == (10, True)
    assert taken(store, FairShareInput(2, 10)) == (0, True)
    assert taken(store, FairShareInput(2, 0)) == (10, False)


def test_three_listeners_divide_twenty_tasks(store: Store) -> None:
    make(store, 20)
    assert [taken(store, FairShareInput(3, 0))[0] for _ in range(3)] == [7, 7, 6]


def test_more_is_due_than_there_is_room_for(store: Store) -> None:
    make(store, 40)
    assert taken(store, FairShareInput(2, 0), places=5) == (5, False), (
        "it has fewer places than its share"
    )
    assert taken(store, FairShareInput(2, 15), places=7) == (5, True), "all that is due counts"


def test_single_tasks_go_to_who_runs_fewer(store: Store) -> None:
    held = [0, 0]
    for number in range(6):
        make(store, 1, name=f"single{number}-")
        for who in (0, 1):
            held[who] += taken(store, FairShareInput(2, held[who]))[0]
    assert held == [3, 3]


def test_without_a_share_a_claim_takes_what_it_has_room_for(store: Store) -> None:
    make(store, 20)
    assert taken(store, None) == (20, False)


def test_without_what_it_holds_a_claim_has_no_limit_and_learns_how_many_run(store: Store) -> None:
    make(store, 20)
    assert claim(store, FairShareInput(2, 0)).running == 10
    assert claim(store, FairShareInput(2, 10)).running == 10
    answer = claim(store, FairShareInput(2, None), places=5)
    assert (len(answer.tasks), answer.shared, answer.running) == (5, False, 15)
    assert claim(store, None).running == -1


def test_what_is_left_keeps_its_place_and_is_the_next_due(
    store: Store, client: redis.Redis
) -> None:
    make(store, 4)
    before = client.zrange("expirebridge:pending", 2, -1, withscores=True)
    answer = claim(store, FairShareInput(2, 0))
    assert answer.next_due is not None
    assert answer.next_due <= answer.now_us // 1000
    assert client.zrange("expirebridge:pending", 0, -1, withscores=True) == before


def test_a_resent_claim_finds_its_own(store: Store) -> None:
    make(store, 4)
    call = claiming.claim("t", Settings(), places=9, idle=True, share=FairShareInput(2, 0))
    first, again = store.run(call), store.run(claiming.resent(call))
    assert sorted(task.id for task in again.tasks) == sorted(task.id for task in first.tasks)
    assert len(again.tasks) == 2


def test_a_task_that_must_run_alone_is_reported_as_that(store: Store, client: redis.Redis) -> None:
    make(store, 3)
    for n in range(3):
        client.hset(f"expirebridge:task:t{n}", "lapses", 2)
    answer = claim(store, FairShareInput(2, 0), idle=True)
    assert (len(answer.tasks), answer.alone, answer.shared) == (1, True, False)


# A fleet of several codes


def join(store: Store, listener: str, code: str, *functions: str) -> Sequence[tuple[str, int]]:
    store.run(fleet_commands.declare(code, dict.fromkeys(functions, "()")))
    beat = claiming.heartbeat(listener, 10, [], code=code, functions=len(functions))
    return store.run(beat).codes


def claim_known(store: Store, code: str, share: FairShareInput | None) -> Claim:
    call = claiming.claim_known(
        new_nonce(), Settings(), places=50, idle=False, code=code, walks=WHOLE, share=share
    )
    return store.run(call)


def test_a_heartbeat_counts_the_listeners_of_each_code_if_there_are_several(store: Store) -> None:
    assert join(store, "one", "aa", "mail.send") == []
    assert join(store, "two", "aa", "mail.send") == []
    assert join(store, "three", "bb ?", "orders.rate") == [("aa", 2), ("bb", 1)]


def test_the_listeners_that_know_a_function_divide_its_tasks(store: Store) -> None:
    join(store, "one", "aa", "mail.send")
    join(store, "two", "aa", "mail.send")
    codes = join(store, "three", "bb", "orders.rate")
    make(store, 20)
    first = claim_known(store, "aa", FairShareInput(3, 0, codes))
    assert (len(first.tasks), first.shared) == (10, True)
    [walked] = first.walked
    assert not walked.finished, "the rest is not passed over"
    second = claim_known(store, "aa", FairShareInput(3, 0, codes))
    assert (len(second.tasks), second.shared) == (10, False)


def test_what_one_listener_alone_knows_it_takes(store: Store) -> None:
    join(store, "one", "aa", "mail.send")
    codes = join(store, "two", "bb", "orders.rate")
    make(store, 20, RATE)
    assert len(claim_known(store, "bb", FairShareInput(2, 0, codes)).tasks) == 20


def test_a_claim_in_a_fleet_of_several_codes_learns_how_many_run(store: Store) -> None:
    join(store, "one", "aa", "mail.send")
    codes = join(store, "two", "bb", "mail.send", "orders.rate")
    make(store, 20)
    assert claim_known(store, "aa", FairShareInput(2, 0, codes)).running == 10
    answer = claim_known(store, "bb", FairShareInput(2, None, codes))
    assert (len(answer.tasks), answer.shared, answer.running) == (10, False, 20)


def test_older_listeners_are_taken_to_know_all(store: Store) -> None:
    join(store, "one", "aa", "mail.send")
    beat_without_code(store, "older")
    codes = join(store, "two", "bb", "orders.rate")
    make(store, 20)
    assert len(claim_known(store, "aa", FairShareInput(3, 0, codes)).tasks) == 10


def test_newer_and_older_code_that_both_know_a_function_divide_its_tasks(store: Store) -> None:
    join(store, "one", "aa", "mail.send")
    codes = join(store, "two", "bb", "mail.send", "orders.rate")
    make(store, 20)
    assert len(claim_known(store, "aa", FairShareInput(2, 0, codes)).tasks) == 10
    assert len(claim_known(store, "bb", FairShareInput(2, 0, codes)).tasks) == 10


# The rule


@examples(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    capacities=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    rounds=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 6)), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_whoever_asks_first_all_is_taken_as_far_as_there_is_room(
    store: Store,
    client: redis.Redis,
    capacities: list[int],
    rounds: list[tuple[int, int]],
    order: Random,
) -> None:
    """In each round tasks become due and some end. All ask twice, the second time for the rest."""
    client.flushdb()
    held: list[list[Settlement]] = [[] for _ in capacities]
    made = due = 0

    def ask(who: int, share: FairShareInput | None) -> int:
        places = capacities[who] - len(held[who])
        if not places:
            return 0
        answer = claim(store, share, places=places)
        assert len(answer.tasks) <= places
        if share and share.held is not None:
            running = sum(map(len, held))
            assert len(answer.tasks) <= max(-(-(due + running) // len(capacities)) - share.held, 0)
            assert answer.shared == (len(answer.tasks) < min(places, due))
        else:
            assert len(answer.tasks) == min(places, due)
        held[who] += [Settlement(task.id, task.token, "succeeded") for task in answer.tasks]
        return len(answer.tasks)

    for more, ending in rounds:
        if more:
            make(store, more, name=f"t{made}-")
        made, due = made + 1, due + more
        for who in range(len(capacities)):
            over, held[who] = held[who][:ending], held[who][ending:]
            if over:
                store.run(claiming.settle(over, Settings()))
        before, all_have_places = (
            due,
            all(len(h) < r for h, r in zip(held, capacities, strict=True)),
        )
        askers = list(range(len(capacities)))
        order.shuffle(askers)
        for who in askers:
            due -= ask(who, FairShareInput(len(capacities), len(held[who])))
        assert due < before or not before or not all_have_places, "nobody took anything"
        for who in askers:
            due -= ask(who, None)
        assert not due or all(len(h) == r for h, r in zip(held, capacities, strict=True))


# Listeners


class Fleet:
    """Listeners in this process, whose handlers run until the test lets them end."""

    def __init__(self) -> None:
        self.witnesses: list[Witness] = []
        self.listeners: list[Listener] = []
        self.may_end = asyncio.Event()
        self._started = asyncio.Condition()

    async def hold(self) -> None:
        async with self._started:
            self._started.notify_all()
        await self.may_end.wait()

    def shares(self) -> list[int]:
        """How many tasks each has started."""
        return [len(witness.seen(Started)) for witness in self.witnesses]

    async def until_started(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE), self._started:
            await self._started.wait_for(lambda: sum(self.shares()) >= count)

    async def until_all_know_each_other(self) -> None:
        """Each beats when another joins; this waits for no other beat."""
        memberships = [each._servers.consumers[0].membership for each in self.listeners]
        async with asyncio.timeout(PATIENCE):
            while {each.listeners for each in memberships} != {len(memberships)}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def fleet_of(url: str, *concurrency: int) -> AsyncIterator[Fleet]:
    """Listeners of these sizes, which know each other."""
    async with AsyncExitStack() as stack:
        fleet = Fleet()
        for size in concurrency:
            witness = Witness()
            settings = Settings(url=url, concurrency=size)
            listener = listening(settings, witness, hold=fleet.hold)
            fleet.witnesses.append(witness)
            fleet.listeners.append(await stack.enter_async_context(listener))
        await fleet.until_all_know_each_other()
        try:
            yield fleet
        finally:
            fleet.may_end.set()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left to others is left for good: however busy the machine, they are in time."""
    monkeypatch.setattr(fair_share, "PATIENCE", 3600.0)


@pytest.fixture
def only_when_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks just because a second has passed: what is forgotten stays where it is."""
    monkeypatch.setattr(due_timer, "LONGEST_SLEEP", 3600.0)


def hold(count: int) -> list[dict[str, object]]:
    return [{"func": "test.hold", "delay": 0}] * count


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("listeners", "shares"), [(2, [10, 10]), (3, [6, 7, 7])])
async def test_tasks_that_are_due_together_are_divided(
    url: str, async_bridge: AsyncBridge, listeners: int, shares: list[int]
) -> None:
    async with fleet_of(url, *[100] * listeners) as fleet:
        await async_bridge.make_tasks(hold(20))
        await fleet.until_started(20)
        assert sorted(fleet.shares()) == shares


@pytest.mark.usefixtures("patient")
async def test_tasks_that_come_one_by_one_are_divided(url: str, async_bridge: AsyncBridge) -> None:
    async with fleet_of(url, 100, 100) as fleet:
        for number in range(10):
            await async_bridge.make_tasks(hold(1))
            await fleet.until_started(number + 1)
        assert fleet.shares() == [5, 5]


@pytest.mark.usefixtures("only_when_due")
async def test_what_a_full_listener_leaves_others_take(url: str, async_bridge: AsyncBridge) -> None:
    async with fleet_of(url, 1, 100) as fleet:
        other = fleet.listeners[1]
        other.suspend()
        await async_bridge.make_tasks(hold(1))
        await fleet.until_started(1)
        other.resume()
        for made in (20, 21, 22):
            await async_bridge.make_tasks(hold(19 if made == 20 else 1))
            await fleet.until_started(made)
        assert fleet.shares() == [1, 21]


@pytest.mark.usefixtures("only_when_due")
async def test_what_a_suspended_listener_leaves_others_take(
    url: str, async_bridge: AsyncBridge
) -> None:
    async with fleet_of(url, 100, 100) as fleet:
        fleet.listeners[0].suspend()
        await async_bridge.make_tasks(hold(20))
        await fleet.until_started(20)
        assert fleet.shares() == [0, 20]


@pytest.mark.usefixtures("only_when_due", "without_clock")
async def test_without_the_clock_what_was_left_is_asked_for_too(
    store: Store, url: str, async_bridge: AsyncBridge
) -> None:
    """Another listener is counted that will never ask."""
    witness = Witness()

    async def send() -> None: ...

    store.run(claiming.heartbeat("another", 10, [], code="c0de"))
    async with listening(Settings(url=url), witness, send=send):
        await async_bridge.make_tasks([{"func": "test.send", "delay": 0}] * 9)
        await witness.until_ended(9)
