"""A listener in a cluster whose database has several partitions: a node for each primary."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest
import redis

from expirebridge import Bridge
from expirebridge.connection.cluster_client import slot_of
from expirebridge.connection.urls import Address
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import End, FailedOver, Gap, Misplaced, Started
from expirebridge.listener.listener import Listener
from expirebridge.listener.partition import due_timer
from expirebridge.listener.server.server import Server
from expirebridge.listener.server.subscriber import Subscriber
from expirebridge.settings import Settings
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER
from tests.kit.apart import LAYOUT, homes_of, make_notes, slot_of_task
from tests.kit.cluster import Cluster
from tests.kit.logs import Log
from tests.kit.patience import PATIENCE
from tests.kit.servers import EMBEDDED, hanging
from tests.kit.witness import Witness, listening, until_logged

MANY = [f"task-{number}" for number in range(32)]


@pytest.fixture
def bridge(cluster: Cluster) -> Iterator[Bridge]:
    with Bridge(cluster.url) as bridge:
        yield bridge


async def note(_: object) -> None:
    """Do nothing."""


def nodes_of(listener: Listener) -> dict[Address, Server]:
    return listener._servers.nodes


async def until_tag_is_heard(listener: Listener, node: EmbeddedServer, slot: int) -> None:
    """Wait until the listener's consumer of a slot stands on this node."""
    [there] = [each for at, each in nodes_of(listener).items() if at.port == node.port]
    async with asyncio.timeout(PATIENCE):
        while slot not in {  # noqa: ASYNC110 - nothing says so for each partition
            slot_of(consumer.store.database.prefix) for consumer in there.key_router.consumers
        }:
            await asyncio.sleep(0.01)


async def until_all_hear(listener: Listener, witness: Witness) -> None:
    """Wait until key events of all nodes are heard."""
    wanted = {str(address) for address in nodes_of(listener)}
    await witness.until(
        lambda: wanted <= {gap.node for gap in witness.seen(Gap) if "subscription" in gap.reason}
    )


@pytest.mark.rest
async def test_tasks_of_all_nodes_run_on_time(
    cluster: Cluster, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No partition looks once a second for what it has missed: its timer must wake it.
    monkeypatch.setattr(due_timer, "LONGEST_SLEEP", 3600.0)
    witness = Witness()
    async with listening(Settings(url=cluster.url), witness, note=note):
        await asyncio.to_thread(make_notes, bridge, MANY, 1.0)
        await witness.until_ended(len(MANY), End.SUCCEEDED)
    assert len({home.port for home in homes_of(cluster, MANY).values()}) == 3
    counts = await asyncio.to_thread(bridge.count)
    assert (counts.succeeded, counts.listeners) == (len(MANY), 0)


async def test_keys_of_other_clients_run_at_the_node_of_their_partition(
    cluster: Cluster, bridge: Bridge
) -> None:
    witness = Witness()
    async with listening(Settings(url=cluster.url), witness, note=note) as listener:
        await until_all_hear(listener, witness)
        for id, home in homes_of(cluster, MANY[:12]).items():
            name = await asyncio.to_thread(bridge.key_of, id, "test.note", [1])
            with cluster.client(home) as client:
                client.set(name, "", px=200)
        ended = await witness.until_ended(12, End.SUCCEEDED)
    assert {event.task.id for event in ended} == set(MANY[:12])
    assert witness.seen(Misplaced) == []


@pytest.mark.rest
async def test_a_listener_is_ready_when_each_node_is_heard_whose_first_subscription_broke(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe, broken = Subscriber._listen, list[Subscriber]()

    async def break_first(self: Subscriber) -> None:
        if not broken:
            broken.append(self)
            raise redis.ConnectionError("it broke")
        await subscribe(self)

    monkeypatch.setattr(Subscriber, "_listen", break_first)
    async with listening(Settings(url=cluster.url), note=note):
        doorbells = [f"{prefix}:doorbell:0" for prefix in LAYOUT.prefixes()]
        heard = [
            cluster.ask(cluster.primary_of(slot_of(name)), "PUBSUB", "NUMSUB", name)[1]
            for name in doorbells
        ]
    assert broken
    assert heard == [1] * PARTITIONS_OF_CLUSTER


@pytest.mark.rest
async def test_misplaced_keys_are_named_whichever_node_has_them(
    cluster: Cluster, bridge: Bridge, log: Log
) -> None:
    """Those with no tag are in the slot of their own name; and no partition may be there."""
    right = {id: LAYOUT.hash_tag_of(LAYOUT.partition_of(id)) for id in MANY[:12]}
    wrong = {id: ["", "{b}", LAYOUT.hash_tag_of(LAYOUT.partition_of(id) ^ 1)][place % 3]
             for place, id in enumerate(right)}  # fmt: skip
    homes = set[int]()
    witness = Witness()
    async with listening(Settings(url=cluster.url), witness, note=note) as listener:
        await until_all_hear(listener, witness)
        for id, tag in wrong.items():
            name = f'{tag}{id}:?test.note?["secret"]'
            home = cluster.primary_of(cluster.slot_of(name))
            homes.add(home.port)
            with cluster.client(home) as client:
                client.set(name, "", px=100)
        await witness.until(lambda: len(witness.seen(Misplaced)) == len(wrong))
    assert len(homes) == 3
    assert {event.id: event.right for event in witness.seen(Misplaced)} == right
    assert witness.ended() == []
    assert "secret" not in log.text()


@pytest.mark.rest
async def test_a_node_without_a_partition_is_heard_too(cluster: Cluster, bridge: Bridge) -> None:
    bridge.create_partitions(2)
    witness = Witness()
    async with listening(Settings(url=cluster.url), witness, note=note) as listener:
        await until_all_hear(listener, witness)
        counts = [len(node.key_router.consumers) for node in nodes_of(listener).values()]
        assert sorted(counts) == [0, 1, 1]
        ids = [str(number) for number in range(20)]
        for id in ids:
            with cluster.client(cluster.primary_of(cluster.slot_of(f"{id}:?test.note?[1]"))) as one:
                one.set(f"{id}:?test.note?[1]", "", px=100)
        await witness.until(lambda: len(witness.seen(Misplaced)) == len(ids))


@pytest.mark.rest
async def test_consumers_follow_their_slots_to_a_promoted_replica(
    cluster: Cluster, bridge: Bridge
) -> None:
    """In order, then by a death: what was made before, and after, runs once."""
    witness = Witness()
    async with listening(Settings(url=cluster.url, lease=3.0), witness, note=note) as listener:
        await until_all_hear(listener, witness)
        await asyncio.to_thread(make_notes, bridge, MANY, 3.0)
        old = homes_of(cluster, MANY)[MANY[0]]
        new = await asyncio.to_thread(cluster.fail_over, old)
        await witness.until(lambda: witness.seen(FailedOver))
        await witness.until_ended(len(MANY), End.SUCCEEDED)
        again = [f"again-{number}" for number in range(32)]
        await asyncio.to_thread(make_notes, bridge, again, 3.0)
        await asyncio.to_thread(cluster.until_in_step, new)
        cluster.kill(new)
        # A claim that took longer than a lease to be answered brings tasks that are given back.
        await witness.until_ended(2 * len(MANY), End.SUCCEEDED)
        moves = [(event.before, event.server) for event in witness.seen(FailedOver)]
    addresses = [f"127.0.0.1:{node.port}" for node in (old, new)]
    cluster.restart(new)
    assert moves == [tuple(addresses), tuple(reversed(addresses))]
    counts = await asyncio.to_thread(bridge.count)
    assert (counts.succeeded, counts.cancelled, counts.failed) == (64, 0, 0)
    assert all(event.task.attempt == 1 for event in witness.ended())
    assert len({event.task.id for event in witness.seen(Started)}) == len(witness.seen(Started))


@pytest.mark.rest
@pytest.mark.parametrize("server_name", [EMBEDDED], indirect=True)
async def test_a_slot_that_migrates_is_followed_alone(cluster: Cluster, bridge: Bridge) -> None:
    """The other partitions of both nodes stay where they are; and back."""
    witness = Witness()
    id = MANY[0]
    slot, source = slot_of_task(id), homes_of(cluster, [id])[id]
    target = next(home for home in homes_of(cluster, MANY).values() if home is not source)
    async with listening(Settings(url=cluster.url), witness, note=note) as listener:
        await until_all_hear(listener, witness)
        for place, goal in enumerate((target, source), start=1):
            mine, others = f"{id}@{place}", [f"{place}-{number}" for number in range(16)]
            await asyncio.to_thread(make_notes, bridge, [mine, *others], 1.5)
            await asyncio.to_thread(cluster.migrate, slot, goal)
            await witness.until_ended(17 * place, End.SUCCEEDED)
            # Foreign tasks are heard where the slot is now.
            with cluster.client(goal) as client:
                name = await asyncio.to_thread(bridge.key_of, f"{id}@key{place}", "test.note", [1])
                await until_tag_is_heard(listener, goal, slot)
                client.set(name, "", px=50)
            await witness.until_ended(17 * place + place, End.SUCCEEDED)


@pytest.mark.rest
async def test_a_move_left_half_way_pauses_one_consumer(
    cluster: Cluster, bridge: Bridge, log: Log
) -> None:
    """It fails with its typed error, cancels nothing, and goes on when the move is finished."""
    witness = Witness()
    id = MANY[0]
    slot, source = slot_of_task(id), homes_of(cluster, [id])[id]
    target = next(home for home in homes_of(cluster, MANY).values() if home is not source)
    here = [f"{id}@{number}" for number in range(20)]
    others = [each for each in MANY[1:] if slot_of_task(each) != slot]
    async with listening(Settings(url=cluster.url), witness, note=note) as listener:
        await until_all_hear(listener, witness)
        await asyncio.to_thread(make_notes, bridge, here, 2.0)
        await asyncio.to_thread(cluster.begin_move, slot, target, keys=10)
        await asyncio.to_thread(make_notes, bridge, others, 1.0)
        await witness.until_ended(len(others), End.SUCCEEDED)
        await until_logged(lambda: any(f["kind"] == "SlotMoving" for f in log.fields("outage")))
        assert {event.task.id for event in witness.ended()} == set(others)
        # That the node's other consumers have their answers does not end it.
        more = [f"{each}@more" for each in others]
        await asyncio.to_thread(make_notes, bridge, more, 0.2)
        await witness.until_ended(2 * len(others), End.SUCCEEDED)
        assert (log.events()["outage"], log.events()["recovered"]) == (1, 0)
        await asyncio.to_thread(cluster.finish_move, slot, target)
        await witness.until_ended(2 * len(others) + len(here), End.SUCCEEDED)
        counts = await asyncio.to_thread(bridge.count)
    assert (counts.cancelled, counts.failed) == (0, 0)
    assert all(event.task.attempt == 1 for event in witness.ended())
    cluster.begin_move(slot, source)
    cluster.finish_move(slot, source)


@pytest.mark.rest
async def test_a_node_that_hangs_takes_no_room_from_the_others(
    cluster: Cluster, bridge: Bridge
) -> None:
    """With one place, which its consumers reserve as well."""
    witness = Witness()
    homes = homes_of(cluster, MANY)
    away = homes[MANY[0]]
    there = [id for id, home in homes.items() if home is not away]
    async with listening(
        Settings(url=cluster.url, concurrency=1, lease=600.0), witness, note=note
    ) as listener:
        await until_all_hear(listener, witness)
        # Due while the node hangs: each of its consumers has something to claim.
        await asyncio.to_thread(make_notes, bridge, MANY, 1.0)
        with hanging(away):
            # A consumer of that node waits for its claim for as long as a lease.
            await witness.until_ended(len(there), End.SUCCEEDED)
        assert {event.task.id for event in witness.ended()} == set(there)
        await witness.until_ended(len(MANY), End.SUCCEEDED)
    cluster.until_well()


@pytest.mark.rest
async def test_a_listener_starts_while_a_node_is_down(cluster: Cluster, bridge: Bridge) -> None:
    """With both of its nodes: nobody takes over. It goes on there once they are back."""
    homes = homes_of(cluster, MANY)
    away = homes[MANY[0]]
    there = [id for id, home in homes.items() if home is not away]
    make_notes(bridge, MANY, 0)
    cluster.until_in_step(away)
    replica = cluster.replica_of(away)
    cluster.kill(replica)
    cluster.kill(away)
    witness = Witness()
    async with listening(Settings(url=cluster.url), witness, note=note):
        await witness.until_ended(len(there), End.SUCCEEDED)
        assert {event.task.id for event in witness.ended()} == set(there)
        await asyncio.to_thread(replica.start)
        await asyncio.to_thread(cluster.restart, away)
    cluster.until_well()


@pytest.mark.rest
async def test_a_listener_hears_soon_if_those_before_it_were_killed(
    cluster: Cluster, bridge: Bridge
) -> None:
    """They count for half a lease, and would have been elected; the living ones beat at once when
    it joins them.
    """
    await asyncio.to_thread(bridge.create_partitions, PARTITIONS_OF_CLUSTER)
    killed = {f"killed:{number}": time.time() * 1000 for number in range(50)}
    for prefix in LAYOUT.prefixes():
        with cluster.client(cluster.primary_of(slot_of(prefix))) as client:
            client.zadd(f"{prefix}:listeners", killed)
    witness = Witness()
    async with listening(Settings(url=cluster.url, lease=60.0), witness, note=note) as listener:
        await until_all_hear(listener, witness)


@pytest.mark.rest
async def test_each_node_has_two_ears_among_many_listeners(cluster: Cluster) -> None:
    """And not the same ones for all nodes."""
    async with contextlib.AsyncExitStack() as stack:
        witnesses = [Witness() for _ in range(5)]
        listeners = [
            await stack.enter_async_context(
                listening(Settings(url=cluster.url, lease=3.0), witness, note=note)
            )
            for witness in witnesses
        ]

        def elected() -> dict[Address, list[int]]:
            return {
                address: [
                    place for place, listener in enumerate(listeners)
                    if nodes_of(listener)[address]._event_demand.open
                ]
                for address in nodes_of(listeners[0])
            }  # fmt: skip

        async with asyncio.timeout(PATIENCE):
            while {len(each) for each in elected().values()} != {2}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # nothing says that they were drawn
        for address, places in elected().items():
            node = next(each for each in cluster.nodes if each.port == address.port)
            channel, count = "__keyevent@0__:expired", -1
            async with asyncio.timeout(PATIENCE):
                while count != len(places):
                    _, count = cluster.ask(node, "PUBSUB", "NUMSUB", channel)
                    await asyncio.sleep(0.01)
    del witnesses
