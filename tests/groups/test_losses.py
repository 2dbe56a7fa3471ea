"""Groups across a loss of writes: a replica that was behind takes its primary's place.

What is written between the last write that the replica got and the first one that it took itself is
lost, as at any failover. Here both moments are chosen, by the number of what a producer sends.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from expirebridge import Bridge, Group, GroupError, GroupState, State, Then
from expirebridge.bridge import Operations
from expirebridge.connection import clients
from expirebridge.embedded.server import HOST, EmbeddedServer
from expirebridge.groups.names import member_id
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings
from expirebridge.store.batching import RequestBatcher
from expirebridge.store.client import Sent, Store
from expirebridge.task.calls.claiming import Settlement
from tests.kit.patience import PATIENCE
from tests.kit.servers import PART
from tests.kit.steps import PREFIX, claim, settle, state_of

pytestmark = pytest.mark.servers("oldest")

THEN = Then("orders.close", [7])
EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "1" if PART == "quick" else "8"))
"""Failovers, of a second each, beside those that are written down; `make machine` sets more."""
CALLS = 12
"""About how many requests a producer sends for the largest group."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its replica, which takes its place when a test wants it."""

    primary: EmbeddedServer
    replica: EmbeddedServer

    def begin(self) -> None:
        """Empty both, and have one follow the other."""
        with redis.Redis(port=self.primary.port) as client:
            client.flushall()
        with redis.Redis(port=self.replica.port) as client:
            client.replicaof(HOST, str(self.primary.port))
        self.until_in_step()

    def until_in_step(self) -> None:
        """Wait until the replica has what was written until now."""
        with redis.Redis(port=self.primary.port) as client:
            client.incr("mark")
            assert client.wait(1, round(PATIENCE * 1000)) == 1

    def part(self) -> None:
        """From here on the replica is a primary, and what the old one takes is lost."""
        self.until_in_step()
        with redis.Redis(port=self.replica.port) as client:
            client.replicaof("NO", "ONE")


class FailingOver(Store):
    """A producer's store, whose server fails over.

    At its request `parts` the replica stops to follow, and `lost` requests later the producer finds
    it. At `runs`, all members that are due run.
    """

    def __init__(self, pair: Pair, *, parts: int, lost: int, runs: int = -1) -> None:
        super().__init__(clients.producer_client(pair.primary.url), prefix=PREFIX)
        self.pair, self.parts, self.found, self.runs = pair, parts, parts + lost, runs
        self.sent = 0

    def _send(self, command: Sent) -> Any:
        if self.sent == self.runs:
            run_all(self.client)
        if self.sent == self.parts:
            self.pair.part()
        if self.sent == self.found:
            self.find_primary()
        self.sent += 1
        return super()._send(command)

    def find_primary(self) -> None:
        """From here on, ask the new primary."""
        self.client.close()
        self.client = clients.producer_client(self.pair.replica.url)
        self._batcher = RequestBatcher(self.client.execute_command)

    def end(self) -> None:
        """Have the failover happen, if it has not yet."""
        if self.sent <= self.parts:
            self.pair.part()
        if self.sent <= self.found:
            self.find_primary()
        self.parts = self.found = self.runs = -1


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    options = {"repl-diskless-sync-delay": "0"}
    with EmbeddedServer(options=options) as primary, EmbeddedServer(options=options) as replica:
        yield Pair(primary, replica)


def run_all(client: redis.Redis) -> None:
    """Run all that is due, successfully."""
    store = Store(client, prefix=PREFIX)
    while claimed := claim(store).tasks:
        settle(store, *(Settlement(task.id, "t", "succeeded") for task in claimed))


def items(count: int) -> list[dict[str, Any]]:
    return [{"func": "mail.send", "args": [number], "delay": 0} for number in range(count)]


def made_by() -> Operations:
    """The operations of a producer."""
    return Operations(Settings(), Hooks())


def assert_not_early(store: Store, count: int) -> None:
    """The follow-up is paused, or each of so many members has run."""
    follow_up = state_of(store, "g@then")
    if follow_up not in {State.PAUSED, None}:
        states = {state_of(store, member_id("g", number)) for number in range(count)}
        assert states <= {State.SUCCEEDED}, f"the follow-up is {follow_up}; members are {states}"


moments = st.integers(0, CALLS)
counts = st.sampled_from([1, 70, 300, 600])


@settings(max_examples=EXAMPLES, deadline=None, phases={Phase.explicit, Phase.generate})
@example(count=600, parts=4, lost=3, runs=CALLS)
@example(count=600, parts=9, lost=2, runs=6)
@given(count=counts, parts=moments, lost=moments, runs=moments)
def test_a_group_never_ends_without_members_that_were_lost(
    pair: Pair, count: int, parts: int, lost: int, runs: int
) -> None:
    """It is made whole, or the call raises, and the same call again completes it."""
    pair.begin()
    store = FailingOver(pair, parts=parts, lost=lost, runs=runs)
    operations = made_by()
    group: Group | None = None
    try:
        with suppress(GroupError):
            group = store.run(operations.make_group("g", items(count), then=THEN))
        if group is not None:
            assert (group.closed, group.total) == (True, count)
        store.end()
        run_all(store.client)
        assert_not_early(store, count)
        again = store.run(operations.make_group("g", items(count), then=THEN))
        assert (again.closed, again.total) == (True, count)
        run_all(store.client)
        assert state_of(store, "g@then") is State.SUCCEEDED
        assert_not_early(store, count)
        found = store.run(operations.get_group("g"))
        assert found is not None
        assert (found.state, found.succeeded) == (GroupState.ENDED, count)
    finally:
        store.client.close()


@settings(max_examples=EXAMPLES, deadline=None, phases={Phase.explicit, Phase.generate})
@example(count=600, parts=4, lost=3)
@given(count=counts, parts=moments, lost=moments)
def test_members_that_were_lost_while_they_were_added_are_made_once_more(
    pair: Pair, count: int, parts: int, lost: int
) -> None:
    """If the server fails over later, nobody knows, as with any task."""
    pair.begin()
    store, operations = Store(clients.producer_client(pair.primary.url), prefix=PREFIX), made_by()
    store.run(operations.make_group("g", items(1), then=THEN, close=False))
    pair.until_in_step()
    adder = FailingOver(pair, parts=parts, lost=lost)
    try:
        made = adder.run(operations.make_tasks(items(count), group="g"))
        if adder.sent > adder.found:
            assert len({task.id for task in made}) == count
            assert {state_of(adder, task.id) for task in made} == {State.PENDING}
    finally:
        store.client.close()
        adder.client.close()


def test_numbers_that_were_given_out_twice_are_one_task_each(pair: Pair) -> None:
    """The server lost that it had given them out, and gave them to somebody else."""
    pair.begin()
    with Bridge(pair.primary.url) as bridge:
        bridge.make_group("g", items(1), close=False)
        bridge.make_tasks(items(1), group="g")  # from here on the server knows the script
    pair.until_in_step()

    class Overtaken(FailingOver):
        def find_primary(self) -> None:
            super().find_primary()
            with Bridge(self.pair.replica.url) as other:
                other.make_tasks(items(100), group="g")

    adder = Overtaken(pair, parts=0, lost=1)
    own = [{**one, "func": "mail.own"} for one in items(300)]
    made = adder.run(made_by().make_tasks(own, group="g"))
    with Bridge(pair.replica.url) as bridge:
        found = [bridge.get(task.id) for task in made]
        assert [task and (task.func, task.args) for task in found] == [
            ("mail.own", [number]) for number in range(300)
        ]
        group = bridge.get_group("g")
        assert group is not None
        assert group.total == 402
    adder.client.close()
