"""Several partitions in a cluster, for producers: each is on one of three nodes."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import pytest

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    InvalidSetting,
    Outcome,
    PartitionsDiffer,
    State,
)
from expirebridge.checks import Finding, Level, examine
from expirebridge.connection import clients
from expirebridge.embedded.server import HOST
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole
from expirebridge.store.client import Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import claiming
from expirebridge.task.partitions import PartitionLayout
from tests.kit.cluster import Cluster
from tests.kit.colours import Ask, asking_one

PREFIX = "expirebridge"
LAYOUT = PartitionLayout(PREFIX, 16)
MANY = [f"task-{n}" for n in range(64)]
"""Ids of which each partition has some."""


@pytest.fixture(params=[Bridge, pytest.param(AsyncBridge, marks=pytest.mark.rest)])
async def ask(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[Ask]:
    """A producer of either colour."""
    async with asking_one(request.param(cluster.url)) as ask:
        yield ask


@pytest.fixture
def bridge(cluster: Cluster) -> Iterator[Bridge]:
    with Bridge(cluster.url) as bridge:
        yield bridge


def stored(cluster: Cluster, pattern: str = "*") -> dict[bytes, int]:
    """The keys of the cluster, and the place of the node that has each."""
    found = dict[bytes, int]()
    for place, node in enumerate(cluster.nodes):
        if cluster.ask(node, "ROLE")[0] == b"master":
            with cluster.client(node) as client:
                found |= dict.fromkeys(map(bytes, client.scan_iter(pattern)), place)
    return found


def metas(cluster: Cluster) -> dict[str, list[Any]]:
    """What `meta` says of format, partitions and features, of each prefix that has one."""
    found = dict[str, list[Any]]()
    for name, place in stored(cluster, "*:meta").items():
        words = cluster.ask(cluster.nodes[place], "HMGET", name, "format", "partitions", "features")
        found[name.decode().removesuffix(":meta")] = words
    return found


def all_with(count: int) -> dict[str, list[Any]]:
    """What `metas` are if there are so many."""
    words = [b"1", b"%d" % count, b"partitions"]
    return dict.fromkeys(PartitionLayout(PREFIX, count).prefixes(), words)


# How many there are


async def test_the_first_write_fixes_them(cluster: Cluster, ask: Ask) -> None:
    assert await ask("get", "a") is None
    assert (await ask("count")).pending == 0
    assert (await ask("list")).tasks == []
    assert stored(cluster) == {}  # to read fixes nothing
    assert await ask("count_partitions") == 16
    await ask("make_task", "mail.send", [1], "1h", id="a")
    assert metas(cluster) == all_with(16)
    assert (await ask("get", "a")).state is State.PENDING


@pytest.mark.rest
@pytest.mark.parametrize("count", [2, 4, 64])
async def test_others_are_created_before(cluster: Cluster, ask: Ask, count: int) -> None:
    for _ in range(2):
        assert await ask("create_partitions", count) == count
        assert metas(cluster) == all_with(count)
    with pytest.raises(PartitionsDiffer) as refusal:
        await ask("create_partitions", 16)
    assert (refusal.value.count, refusal.value.asked) == (count, 16)
    made = await ask("make_tasks", [{"func": "mail.send", "delay": 60, "id": id} for id in MANY])
    assert {task.outcome for task in made} == {Outcome.CREATED}
    assert metas(cluster) == all_with(count)
    with Bridge(cluster.url) as other:  # it assumes 16
        assert {task.id for id in MANY if (task := other.get(id))} == set(MANY)
        assert other.count_partitions() == count


def test_one_is_refused(cluster: Cluster, bridge: Bridge) -> None:
    with pytest.raises(InvalidSetting, match="hash tag of your own"):
        bridge.create_partitions(1)
    assert stored(cluster) == {}


@pytest.mark.rest
def test_a_client_follows_when_the_database_is_written_anew(
    cluster: Cluster, bridge: Bridge
) -> None:
    for count in (64, 4):
        bridge.create_partitions(count)
        bridge.make_task("mail.send", [1], 60, id="task-1")
        for node in cluster.nodes:
            if cluster.ask(node, "ROLE")[0] == b"master":
                cluster.ask(node, "FLUSHALL")
        with Bridge(cluster.url) as other:
            other.create_partitions(8)
        layout = PartitionLayout(PREFIX, 8)
        made = bridge.make_task("mail.send", [1], 60, id="task-1")
        assert made.key.startswith(layout.hash_tag_of(layout.partition_of("task-1")).encode())
        assert metas(cluster) == all_with(8)
        for node in cluster.nodes:
            if cluster.ask(node, "ROLE")[0] == b"master":
                cluster.ask(node, "FLUSHALL")


@pytest.mark.rest
@pytest.mark.parametrize("count", [8, 16, 32])
def test_a_lost_meta_is_that_of_the_other_partitions(
    cluster: Cluster, bridge: Bridge, count: int
) -> None:
    layout = PartitionLayout(PREFIX, count)
    bridge.create_partitions(count)
    bridge.make_task("mail.send", [1], 60, id="a")
    own = layout.partition_of("a")
    for number in {own, 0}:
        name = f"{layout.prefix_of(number)}:meta"
        cluster.ask(cluster.primary_of(cluster.slot_of(name)), "DEL", name)
    with Bridge(cluster.url) as other:  # it assumes 16, and finds no meta
        task = other.get("a")
        assert task is not None
        assert other.reschedule("a", 120) is Change.MOVED
        assert other.count().pending == 1
    assert metas(cluster)[layout.prefix_of(own)] == [b"1", b"%d" % count, b"partitions"]


# Used


async def test_tasks_are_spread_over_the_nodes(cluster: Cluster, ask: Ask) -> None:
    tasks = [{"func": "mail.send", "delay": 60, "id": id, "tags": ["x"]} for id in MANY]
    made = await ask("make_tasks", tasks)
    assert [task.id for task in made] == MANY
    places = stored(cluster, "*:[?]*")
    assert set(places) == {task.key for task in made}
    assert len(set(places.values())) == 3
    assert (await ask("count")).pending == len(MANY)
    assert sorted(task.id for task in (await ask("list", tag="x", limit=100)).tasks) == sorted(MANY)
    assert await ask("pause_all", MANY) == {Change.PAUSED: len(MANY)}
    assert (await ask("resume_tag", "x"))[Change.RESUMED] == len(MANY)
    drawn = await ask("make_task", "mail.send", [1], 60)
    assert drawn.key.startswith(LAYOUT.hash_tag_of(LAYOUT.partition_of(drawn.id)).encode())
    assert (await ask("cancel_tag", "x"))[Change.CANCELLED] == len(MANY)
    assert await ask("key_of", "a", "mail.send") == b"{%s}a:?mail.send?[]" % (
        LAYOUT.tag_of(LAYOUT.partition_of("a")).encode()
    )


@pytest.mark.rest
async def test_series_are_where_their_ticks_are(cluster: Cluster, ask: Ask) -> None:
    for id in MANY[:8]:
        await ask("schedule", id, "mail.send", every="1h")
        assert (await ask("run_series", id)).id.startswith(f"{id}@")
    assert {one.id for one in (await ask("list_series")).series} == set(MANY[:8])
    assert await ask("unschedule", MANY[0]) is Change.REMOVED


def test_a_prefix_with_a_tag_has_one(cluster: Cluster) -> None:
    with Bridge(cluster.url, prefix="{app}eb") as own:
        assert own.make_task("mail.send", [1], 60, id="a").key == b"{app}a:?mail.send?[1]"
        assert own.count_partitions() == 1
        with pytest.raises(InvalidSetting, match="tag of its own"):
            own.create_partitions(16)


@pytest.mark.rest
def test_a_store_of_a_consumer_is_certain(cluster: Cluster) -> None:
    """What a listener asks a partition, it asks with a number that it was told."""
    client = clients.producer_client(cluster.url, PREFIX)
    store = Store(client, prefix=LAYOUT.prefix_of(3), partitions=16)
    store.run(claiming.heartbeat("me", 10.0, [], code="c0de"))
    assert metas(cluster) == {LAYOUT.prefix_of(3): [b"1", b"16", b"partitions"]}
    client.close()


# Looked after


def test_the_doctor_looks_at_all_nodes(cluster: Cluster, bridge: Bridge) -> None:
    bridge.make_tasks([{"func": "mail.send", "delay": 60, "id": id} for id in MANY])
    bridge.schedule("series", "mail.send", every="1h")
    settings = Settings(url=cluster.url)

    def told() -> dict[str, list[Finding]]:
        found = dict[str, list[Finding]]()
        with closing(clients.probe_client(cluster.url, PREFIX)) as client:
            for one in examine(Partitions(client, prefix=PREFIX), settings, LoginRole.PRODUCER):
                found.setdefault(one.check, []).append(one)
        return found

    found = told()
    assert [str(one) for one in found["partitions"]] == ["all 16 answer"]
    assert found["misplaced keys"][0].level is Level.OK
    assert "series" in found
    home = cluster.primary_of(cluster.slot_of(LAYOUT.prefix_of(0)))
    other = next(
        node for slot in (0, 8000, 16000) if (node := cluster.primary_of(slot)) is not home
    )
    right = LAYOUT.hash_tag_of(LAYOUT.partition_of("a"))
    slot = cluster.slot_of("a")
    cluster.ask(cluster.primary_of(slot), "SET", "a:?mail.send?[1]", "")
    cluster.ask(other, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        found = told()
    finally:
        cluster.ask(other, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert f"a:?mail.send?... must begin with {right}a:" in str(found["misplaced keys"][0])
    assert any(one.message.startswith(f"{HOST}:{other.port}: ") for one in found["eviction"])
    name = f"{LAYOUT.prefix_of(5)}:meta"
    cluster.ask(cluster.primary_of(cluster.slot_of(name)), "HSET", name, "partitions", 8)
    assert told()["partitions"][0].level is Level.ERROR
    with pytest.raises(PartitionsDiffer):
        bridge.list(limit=100)
