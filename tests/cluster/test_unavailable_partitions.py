"""A node of a cluster is unavailable: the others work on, and answers name what they leave out."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    PartlyDone,
    ServerError,
    ServerUnreachable,
    SlotUnserved,
)
from expirebridge.connection import clients
from expirebridge.store import partition_availability
from expirebridge.task.partitions import PartitionLayout
from tests.kit.asked import ports_asked
from tests.kit.cluster import Cluster
from tests.kit.colours import Ask, asking_one
from tests.kit.invoked import app
from tests.kit.servers import hanging

LAYOUT = PartitionLayout("expirebridge", 16)
MANY = [f"task-{n}" for n in range(64)]
SOON = 6.0
"""Seconds in which an answer comes although a node hangs: that is noticed after two."""
HURRIED = "?socket_timeout=0.4&socket_connect_timeout=0.4"
IN_TIME = 4.0
"""The same, for a command whose URL says so: nobody waits until the node has a successor."""


@pytest.fixture(autouse=True)
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known stays known, however slow the machine is."""
    monkeypatch.setattr(partition_availability, "RETRY_AFTER", 60.0)


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a node as for one that will answer, waits for longer than a test may take.

    What others can answer without it is given up sooner, and that stays as it is.
    """
    long = {"socket_timeout": 600, "socket_connect_timeout": 600}
    monkeypatch.setattr(clients, "_PRODUCER", clients._PRODUCER | long)


@pytest.fixture
def full(cluster: Cluster) -> Cluster:
    """A cluster with tasks in all partitions."""
    with Bridge(cluster.url) as bridge:
        bridge.make_tasks(
            [{"func": "mail.send", "delay": "1h", "id": id, "tags": ["x"]} for id in MANY]
        )
        bridge.schedule("series", "mail.send", every="1h")
    return cluster


@contextmanager
def unavailable(cluster: Cluster) -> Iterator[set[int]]:
    """The partitions of a node that hangs, and whose replica does."""
    node = cluster.primary_of(0)
    numbers = {
        number
        for number in range(LAYOUT.count)
        if cluster.primary_of(cluster.slot_of(LAYOUT.prefix_of(number))) is node
    }
    assert 0 < len(numbers) < LAYOUT.count
    try:
        with ExitStack() as stack:
            for one in (cluster.replica_of(node), node):
                stack.enter_context(hanging(one))
            yield numbers
    finally:
        cluster.until_well()


@pytest.fixture(params=[Bridge, pytest.param(AsyncBridge, marks=pytest.mark.rest)])
async def ask(request: pytest.FixtureRequest, full: Cluster) -> AsyncIterator[Ask]:
    """A producer of either colour."""
    async with asking_one(request.param(full.url)) as ask:
        yield ask


def unavailable_of(ids: list[str], numbers: set[int]) -> set[str]:
    return {id for id in ids if LAYOUT.partition_of(id) in numbers}


@pytest.mark.usefixtures("long_waits")
async def test_others_are_read_and_written(
    full: Cluster, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask("count")
    hung = full.primary_of(0).port
    with unavailable(full) as numbers:
        lost = unavailable_of(MANY, numbers)
        counts = await ask("count")
        assert {one.partition for one in counts.left_out} == numbers
        assert {one.why for one in counts.left_out} == {"unreachable"}
        assert counts.pending in {len(MANY) - len(lost), len(MANY) - len(lost) + 1}  # a tick
        # Nobody waits for it again: it is not even asked.
        asked = ports_asked(monkeypatch)
        listing = await ask("list", tag="x", limit=100)
        assert asked
        assert hung not in asked
        assert {one.partition for one in listing.left_out} == numbers
        assert {task.id for task in listing.tasks} == set(MANY) - lost
        assert not listing.complete
        assert (await ask("list_series")).left_out
        each = await ask("list_partitions")
        assert {number for number, one in enumerate(each) if one.left_out} == numbers
        assert await ask("count_partitions") == 16
        with pytest.raises(PartlyDone):
            await ask("find_failed")
        there = min(set(MANY) - lost)
        assert await ask("pause", there) is Change.PAUSED
        assert await ask("resume", there) is Change.RESUMED
        drawn = [await ask("make_task", "mail.send", [1], "1h") for _ in range(20)]
        assert not unavailable_of([task.id for task in drawn], numbers)
    with Bridge(full.url) as other:
        counts = await asyncio.to_thread(other.count)
    assert (counts.pending, counts.left_out) == (len(MANY) + 21, ())


@pytest.mark.rest
async def test_many_say_what_was_not_done(full: Cluster, ask: Ask) -> None:
    others = [f"other-{n}" for n in range(40)]
    tasks: list[dict[str, Any]] = [{"func": "mail.send", "delay": 60, "id": id} for id in others]
    with unavailable(full) as numbers:
        with pytest.raises(PartlyDone) as made:
            await ask("make_tasks", [*tasks, {"func": "mail.send", "delay": 60}])
        lost = unavailable_of(others, numbers)
        assert {others[place] for place in made.value.undone if place < 40} == lost
        done = [task for task in made.value.done if task is not None]
        assert {task.id for task in done} >= set(others) - lost
        with pytest.raises(PartlyDone) as paused:
            await ask("pause_all", MANY)
        assert set(paused.value.undone) == unavailable_of(MANY, numbers)
        assert paused.value.done == {Change.PAUSED: len(MANY) - len(paused.value.undone)}
        with pytest.raises(PartlyDone) as resumed:
            await ask("resume_tag", "x")
        assert resumed.value.done[Change.RESUMED] == len(MANY) - len(paused.value.undone)
        assert isinstance(resumed.value, ServerUnreachable)


@pytest.mark.rest
def test_a_task_that_is_drawn_goes_elsewhere_at_once(full: Cluster) -> None:
    """Its partition's node takes no connection: nothing was sent."""
    node = full.primary_of(0)
    replica = full.replica_of(node)
    full.kill(replica)
    full.kill(node)
    try:
        with Bridge(full.url) as bridge:
            began = time.monotonic()
            made = [bridge.make_task("mail.send", [1], "1h") for _ in range(32)]
            assert time.monotonic() - began < SOON
            assert len({task.id for task in made}) == 32
            ids = ("task-0", "task-1", "task-2")
            lost = next(id for id in ids if _is_unavailable(bridge, id))
            with pytest.raises(ServerError):
                bridge.make_task("mail.send", [1], "1h", id=lost)
            assert bridge.count().pending >= 32
    finally:
        replica.start()
        full.restart(node)


@pytest.fixture
def uncovered(full: Cluster) -> Iterator[Cluster]:
    """A cluster that takes no commands, since a slot has no node."""
    slot, nodes = 0, [node for node in full.nodes if full.ask(node, "ROLE")[0] == b"master"]
    primary = full.primary_of(slot)
    for node in nodes:
        full.ask(node, "CONFIG", "SET", "cluster-require-full-coverage", "yes")
    # The primary first: as long as it claims the slot, its gossip gives the others that slot again.
    for node in sorted(nodes, key=lambda node: node != primary):
        full.ask(node, "CLUSTER", "DELSLOTS", slot)
    try:
        yield full
    finally:
        full.ask(primary, "CLUSTER", "ADDSLOTS", slot)
        for node in nodes:
            full.ask(node, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        full.until_served_by(slot, primary)
        full.until_well()


@pytest.mark.rest
@pytest.mark.parametrize("name", ["count", "list", "list_series", "list_partitions"])
def test_what_nobody_can_answer_is_an_error(uncovered: Cluster, name: str) -> None:
    """As on one server, and with what to do; not an empty answer that leaves all out."""
    said = r"takes no commands: .*`redis-cli --cluster check .*cluster-require-full-coverage no"
    with Bridge(uncovered.url) as bridge, pytest.raises(SlotUnserved, match=said):
        getattr(bridge, name)()


def _is_unavailable(bridge: Bridge, id: str) -> bool:
    return LAYOUT.partition_of(id) in {one.partition for one in bridge.count().left_out}


@pytest.mark.rest
def test_the_commands_say_it(full: Cluster) -> None:
    def run(*words: str, code: int = 0) -> tuple[Any, str]:
        began = time.monotonic()
        result = CliRunner().invoke(app, [*words, "--url", full.url + HURRIED])
        assert result.exit_code == code, result.output
        assert time.monotonic() - began < IN_TIME, words
        text = result.stdout
        return json.loads(text) if "--json" in words else text, result.stderr

    with unavailable(full) as numbers:
        lost = unavailable_of(MANY, numbers)
        for words in (["count"], ["top"], ["stats"], ["forecast"], ["list"], ["series", "list"]):
            told, _ = run(*words, "--json")
            assert {one["partition"] for one in told["left_out"]} == numbers, words
        for words in (["count"], ["forecast"], ["list"], ["partitions", "show"]):
            _, said = run(*words)
            assert f"left out: partitions {LAYOUT.hash_tag_of(min(numbers))} " in said, words
        shown, _ = run("partitions", "show", "--json")
        assert {one["partition"] for one in shown if one["is"] == "unreachable"} == numbers
        assert all(shown[number]["pending"] is None for number in numbers)
        lines, said = run("export", code=3)
        ids = {json.loads(line)["id"] for line in lines.splitlines() if '"id"' in line}
        assert ids & set(MANY) == set(MANY) - lost
        assert "left out: partitions" in said
