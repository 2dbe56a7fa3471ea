"""URLs of a cluster: producers and listeners follow a slot, whichever node serves it."""

import asyncio
import os
import socketserver
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Thread, Timer

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    ServerUnreachable,
    ServerUnsuitable,
    SlotMoving,
    SlotUnserved,
    State,
)
from expirebridge.checks import Level, examine
from expirebridge.connection import clients
from expirebridge.embedded.server import HOST, EmbeddedServer, free_port
from expirebridge.foreign import function_library
from expirebridge.hooks import End, FailedOver
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole, grants
from expirebridge.store.client import Store
from expirebridge.task.calls import looking, producing
from expirebridge.task.calls.call import command
from tests.kit.asked import ports_asked
from tests.kit.cluster import PREFIX, TAG, Cluster
from tests.kit.colours import Ask, asking_one
from tests.kit.logs import Log
from tests.kit.servers import EMBEDDED, SERVERS, hanging
from tests.kit.witness import Witness, listening


@pytest.fixture(params=[Bridge, pytest.param(AsyncBridge, marks=pytest.mark.rest)])
async def ask(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[Ask]:
    """A producer of either colour."""
    async with asking_one(request.param(cluster.url, prefix=PREFIX)) as ask:
        yield ask


@pytest.fixture
def bridge(cluster: Cluster) -> Iterator[Bridge]:
    with Bridge(cluster.url, prefix=PREFIX) as bridge:
        yield bridge


@pytest.fixture
def probe(cluster: Cluster) -> Iterator[Store]:
    """What sends each call once."""
    with closing(clients.probe_client(cluster.url, PREFIX)) as client:
        yield Store(client, prefix=PREFIX)


def tasks_at(cluster: Cluster, node: EmbeddedServer) -> int:
    """How many trigger keys of tasks a node has."""
    with cluster.client(node) as client:
        return len(client.keys(f"{TAG}*:[?]*"))


# Producers


async def test_a_producer_reaches_the_node_of_its_slot(
    cluster: Cluster, slot: int, ask: Ask
) -> None:
    await ask("make_task", "mail.send", [1], "1h", id="a")
    assert tasks_at(cluster, cluster.primary_of(slot)) == 1
    assert await ask("pause", "a") is Change.PAUSED
    assert (await ask("list")).tasks[0].state is State.PAUSED
    assert (await ask("count")).paused == 1


@pytest.mark.rest
async def test_a_failover_in_order_costs_a_producer_no_time(
    cluster: Cluster, slot: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask("make_task", "mail.send", [1], "1h", id="before")
    old = cluster.primary_of(slot)
    cluster.fail_over(old)
    asked = ports_asked(monkeypatch)
    await ask("make_task", "mail.send", [1], "1h", id="after")
    assert asked.count(old.port) == 1  # which names the new one
    assert (await ask("count")).pending == 2


@pytest.mark.rest
async def test_a_promoted_replica_is_found_with_the_first_call(
    cluster: Cluster, slot: int, ask: Ask
) -> None:
    await ask("make_task", "mail.send", [1], "1h", id="before")
    primary = cluster.primary_of(slot)
    replica = cluster.replica_of(primary)
    cluster.kill(primary)
    try:
        cluster.until_served_by(slot, replica)
        await ask("make_task", "mail.send", [1], "1h", id="after")
        assert (await ask("count")).pending == 2
    finally:
        cluster.restart(primary)


@pytest.mark.rest
def test_a_dead_primary_without_a_successor_is_named(
    cluster: Cluster, slot: int, probe: Store
) -> None:
    primary = cluster.primary_of(slot)
    replica = cluster.replica_of(primary)
    probe.run(command("PING"))
    cluster.kill(replica)
    cluster.kill(primary)
    try:
        words = rf"no answer from {HOST}:{primary.port}, which the cluster names for slot {slot}"
        with pytest.raises(ServerUnreachable, match=words) as raised:
            probe.run(looking.count(10))
        # Its address is right: it answered there.
        assert "it answered before" in str(raised.value)
        assert "announce" not in str(raised.value)
    finally:
        replica.start()
        cluster.restart(primary)


@pytest.mark.rest
async def test_a_node_that_hangs_delays_no_call_to_others(
    cluster: Cluster, slot: int, target: EmbeddedServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hanging(target):
        await ask("count")
        asked = ports_asked(monkeypatch)
        for _ in range(20):
            await ask("count")
        assert asked
        assert target.port not in asked
    cluster.until_well()


@pytest.mark.rest
@pytest.mark.parametrize("server_name", [EMBEDDED], indirect=True)
async def test_a_slot_that_migrated_is_followed_at_once(
    cluster: Cluster, slot: int, target: EmbeddedServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cluster.primary_of(slot)
    await ask("make_task", "mail.send", [1], "1h", id="a")
    cluster.migrate(slot, target)
    asked = ports_asked(monkeypatch)
    await ask("make_task", "mail.send", [1], "1h", id="b")
    assert asked.count(source.port) == 1  # which names the other one
    assert (tasks_at(cluster, source), tasks_at(cluster, target)) == (0, 2)
    cluster.migrate(slot, source)


def test_nothing_is_written_while_a_slot_is_moved_key_by_key(
    cluster: Cluster, slot: int, target: EmbeddedServer, bridge: Bridge, probe: Store
) -> None:
    source = cluster.primary_of(slot)
    bridge.make_task("mail.send", [1], "1h", id="a")
    keys = cluster.ask(source, "CLUSTER", "COUNTKEYSINSLOT", slot)
    cluster.begin_move(slot, target, keys=keys // 2)
    for call in (producing.cancel(["a"], keep=60), looking.get("a"), looking.count(10)):
        with pytest.raises(SlotMoving, match=rf"slot {slot} is being moved from .*:{source.port}"):
            probe.run(call)
    assert cluster.ask(source, "CLUSTER", "COUNTKEYSINSLOT", slot) == keys - keys // 2
    assert cluster.ask(target, "CLUSTER", "COUNTKEYSINSLOT", slot) == keys // 2
    cluster.finish_move(slot, target)
    assert bridge.cancel("a") is Change.CANCELLED
    cluster.begin_move(slot, source)
    cluster.finish_move(slot, source)


@pytest.mark.rest
def test_a_move_that_is_finished_in_time_is_outlasted(
    cluster: Cluster, slot: int, target: EmbeddedServer, bridge: Bridge
) -> None:
    source = cluster.primary_of(slot)
    bridge.make_task("mail.send", [1], "1h", id="a")
    for goal in (target, source):
        cluster.begin_move(slot, goal, keys=1)
        with finishing(cluster, slot, goal):
            bridge.make_task("mail.send", [1], "1h")
    assert bridge.count().pending == 3


@contextmanager
def finishing(cluster: Cluster, slot: int, goal: EmbeddedServer) -> Iterator[None]:
    """Finish a move a moment after the block begins."""
    later = Timer(0.5, cluster.finish_move, (slot, goal))
    later.start()
    try:
        yield
    finally:
        later.join()


@pytest.mark.rest
def test_processes_that_were_forked_go_on(cluster: Cluster, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [1], "1h")
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            with suppress(BaseException):
                for _ in range(10):
                    bridge.make_task("mail.send", [1], "1h")
                code = 0
            os._exit(code)
        children.append(child)
    for _ in range(10):
        bridge.make_task("mail.send", [1], "1h")
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert bridge.count().pending == 41


# Listeners


@pytest.mark.rest
async def test_a_listener_follows_its_slot(
    cluster: Cluster, slot: int, target: EmbeddedServer, log: Log
) -> None:
    """A failover in order, then a move key by key that is left half-way for a while."""
    source = cluster.primary_of(slot)
    witness = Witness()

    async def send(user: int) -> None: ...

    async with (
        listening(Settings(url=cluster.url, prefix=PREFIX), witness, send=send),
        AsyncBridge(cluster.url, prefix=PREFIX) as bridge,
    ):
        await witness.until_hearing()
        for number in range(40):
            await bridge.make_task("test.send", [number], 1 + number / 20)
        await asyncio.to_thread(cluster.fail_over, source)
        await witness.until_ended(40)
        await witness.until(lambda: witness.seen(FailedOver))
        for number in range(40):
            await bridge.make_task("test.send", [number], number / 20)
        outages = log.events()["outage"]
        await asyncio.to_thread(cluster.begin_move, slot, target, keys=30)
        await log.until("outage", outages + 1)
        await asyncio.to_thread(cluster.finish_move, slot, target)
        await witness.until_ended(80)
        foreign = f"{TAG}foreign:?test.send?[1]"
        with cluster.client(target) as client:
            client.set(foreign, "", px=50)
        await witness.until_ended(81)
        counts = await bridge.count()
    assert (counts.succeeded, counts.cancelled, counts.failed) == (81, 0, 0)
    assert all(event.task.attempt == 1 for event in witness.ended(End.SUCCEEDED))
    assert log.events()["failed over"] >= 2


@pytest.mark.rest
async def test_a_listener_loses_nothing_when_its_primary_dies(cluster: Cluster, slot: int) -> None:
    primary = cluster.primary_of(slot)
    witness = Witness()

    async def send(user: int) -> None: ...

    async with (
        listening(Settings(url=cluster.url, prefix=PREFIX), witness, send=send),
        AsyncBridge(cluster.url, prefix=PREFIX) as bridge,
    ):
        await witness.until_hearing()
        for number in range(40):
            await bridge.make_task("test.send", [number], 1 + number / 20)
        with cluster.client(primary) as client:
            assert client.wait(1, 5000) == 1
        cluster.kill(primary)
        await witness.until_ended(40)
        counts = await bridge.count()
    assert (counts.succeeded, counts.cancelled, counts.failed) == (40, 0, 0)
    cluster.restart(primary)


# What operators see


@pytest.mark.rest
def test_the_doctor_names_the_node_of_the_slot(cluster: Cluster, slot: int, probe: Store) -> None:
    settings = Settings(url=cluster.url, prefix=PREFIX)
    findings = {each.check: each for each in examine(probe, settings, LoginRole.LISTENER)}
    node = cluster.primary_of(slot)
    assert str(findings["cluster"]) == (
        f"slot {slot} of {PREFIX} is at {HOST}:{node.port}; 3 primaries serve all slots"
    )
    assert {each.check for each in findings.values() if each.level is Level.ERROR} == set()
    assert findings["round trip"].level is Level.OK


@pytest.mark.rest
def test_the_doctor_says_that_a_slot_is_being_moved(
    cluster: Cluster, slot: int, target: EmbeddedServer, probe: Store
) -> None:
    cluster.begin_move(slot, target, keys=1)
    findings = examine(probe, Settings(url=cluster.url, prefix=PREFIX), LoginRole.PRODUCER)
    assert any(f"slot {slot} is being moved from" in each.message for each in findings)
    home = cluster.primary_of(slot)
    cluster.finish_move(slot, target)
    cluster.begin_move(slot, home)
    cluster.finish_move(slot, home)


@pytest.mark.rest
async def test_the_rights_that_are_printed_suffice(cluster: Cluster, slot: int) -> None:
    """Each node has the logins: the slot may come to any of them."""
    for role in (LoginRole.PRODUCER, LoginRole.LISTENER):
        rules = grants(role, prefix=PREFIX, database=0, followed=True, clustered=True)
        words = ("ACL", "SETUSER", role, "reset", "resetchannels", "on", ">secret")
        for node in cluster.nodes:
            cluster.ask(node, *words, *(grant.rule for grant in rules))
    witness = Witness()

    async def send(user: int) -> None: ...

    url = cluster.url.replace("://", "://{}:secret@")
    async with (
        listening(Settings(url=url.format(LoginRole.LISTENER), prefix=PREFIX), witness, send=send),
        AsyncBridge(url.format(LoginRole.PRODUCER), prefix=PREFIX) as bridge,
    ):
        await witness.until_hearing()
        await bridge.make_task("test.send", [1], 0.1)
        await asyncio.to_thread(cluster.fail_over, cluster.primary_of(slot))
        await bridge.make_task("test.send", [1], 0.1)
        await witness.until_ended(2)
    for node in cluster.nodes:
        with cluster.client(node) as client:
            refused = {str(entry["object"]) for entry in client.acl_log()}
        assert refused <= {"config|get"}  # which is asked, and may be refused
        cluster.ask(node, "ACL", "DELUSER", LoginRole.PRODUCER, LoginRole.LISTENER)


# Clients of others


@pytest.mark.rest
def test_a_function_that_follows_ask_is_refused(
    cluster: Cluster, slot: int, target: EmbeddedServer, bridge: Bridge
) -> None:
    """Half of a task would be written, or half of its data believed."""
    source = cluster.primary_of(slot)
    for node in (source, target):
        with cluster.client(node) as client:
            client.function_load(function_library.library_text(), replace=True)
    bridge.make_task("mail.send", [1], "1h", id="a")
    words = ("FCALL", "expirebridge_cancel", 1, PREFIX, "a")
    keys = cluster.ask(source, "CLUSTER", "COUNTKEYSINSLOT", slot)
    for moved in (0, keys):
        cluster.begin_move(slot, target, keys=moved)
        with cluster.client(source) as client, pytest.raises(redis.exceptions.AskError):
            client.execute_command(*words)
        with pytest.raises(redis.exceptions.TryAgainError, match="moved to this node key by key"):
            asking_too(cluster, target, words)
    cluster.finish_move(slot, target)
    assert bridge.get("a") is not None
    with cluster.client(target) as client:
        assert client.execute_command(*words) == b"cancelled"
    cluster.begin_move(slot, source)
    cluster.finish_move(slot, source)


def asking_too(cluster: Cluster, node: EmbeddedServer, words: tuple[str | int, ...]) -> object:
    """What a node answers to a command that follows ASKING on the same connection."""
    with cluster.client(node) as client, client.pipeline(transaction=False) as both:
        both.execute_command("ASKING")
        both.execute_command(*words)
        return both.execute()[1]


# What cannot be


def test_a_server_that_is_of_no_cluster_is_named(server: EmbeddedServer) -> None:
    url = f"redis+cluster://{HOST}:{server.port}"
    with (
        Bridge(url, prefix=PREFIX) as bridge,
        pytest.raises(ServerUnsuitable, match=rf"{HOST}:{server.port} is no node of a cluster"),
    ):
        bridge.count()


def test_one_node_of_a_cluster_refers_to_the_url_of_all(
    cluster: Cluster, slot: int, target: EmbeddedServer
) -> None:
    words = r"redis\+cluster://"
    for url, prefix in (
        (f"redis://{HOST}:{target.port}/0", PREFIX),
        (f"redis://{HOST}:{target.port}/0", "expirebridge"),
    ):
        with Bridge(url, prefix=prefix) as bridge, pytest.raises(ServerUnsuitable, match=words):
            bridge.make_task("mail.send", [1], "1h")


@pytest.mark.rest
def test_one_node_of_a_cluster_works_for_its_own_slots(cluster: Cluster, slot: int) -> None:
    url = f"redis://{HOST}:{cluster.primary_of(slot).port}/0"
    with Bridge(url, prefix=PREFIX) as one, Bridge(cluster.url, prefix=PREFIX) as all_nodes:
        one.make_task("mail.send", [1], "1h", id="a")
        assert all_nodes.get("a") is not None


def test_a_cluster_whose_nodes_cannot_be_reached_is_no_cluster_yet() -> None:
    port = free_port()
    with (
        Bridge(f"redis+cluster://{HOST}:{port}", prefix=PREFIX) as bridge,
        pytest.raises(ServerUnreachable, match=rf"no node of the cluster answers: {HOST}:{port}"),
    ):
        bridge.count()


@pytest.mark.rest
def test_nodes_of_two_clusters_are_refused(cluster: Cluster) -> None:
    with Cluster(SERVERS[EMBEDDED], replicas=0) as other:
        url = f"{cluster.url},{HOST}:{other.nodes[0].port}"
        with (
            Bridge(url, prefix=PREFIX) as bridge,
            pytest.raises(ServerUnsuitable, match=rf"two clusters: {HOST}:{other.nodes[0].port}"),
        ):
            bridge.count()


def test_a_slot_that_nobody_serves_is_named(cluster: Cluster, slot: int) -> None:
    primary = cluster.primary_of(slot)
    for node in cluster.nodes:
        if not is_replica(cluster, node):
            cluster.ask(node, "CLUSTER", "DELSLOTS", slot)
    try:
        with (
            Bridge(cluster.url, prefix=PREFIX) as bridge,
            pytest.raises(SlotUnserved, match="the cluster does not serve the slot now"),
        ):
            bridge.count()
    finally:
        cluster.ask(primary, "CLUSTER", "ADDSLOTS", slot)
        cluster.until_served_by(slot, primary)


def is_replica(cluster: Cluster, node: EmbeddedServer) -> bool:
    return bool(cluster.ask(node, "ROLE")[0] == b"slave")


@pytest.mark.rest
def test_an_address_that_cannot_be_reached_is_named_with_the_settings(
    cluster: Cluster, slot: int, target: EmbeddedServer
) -> None:
    primary = cluster.primary_of(slot)
    port = free_port()
    cluster.ask(primary, "CONFIG", "SET", "cluster-announce-port", port)
    try:
        with (
            closing(clients.probe_client(f"redis+cluster://{HOST}:{primary.port}", PREFIX)) as one,
            pytest.raises(ServerUnreachable, match=rf"{HOST}:{port}, which .*cluster-announce-ip"),
        ):
            Store(one, prefix=PREFIX).run(command("PING"))
    finally:
        cluster.ask(primary, "CONFIG", "SET", "cluster-announce-port", 0)
        cluster.until_served_by(slot, primary)


@pytest.mark.rest
def test_an_address_at_which_something_else_answers_is_named(
    cluster: Cluster, slot: int, target: EmbeddedServer
) -> None:
    primary = cluster.primary_of(slot)
    with answering_http() as port:
        cluster.ask(primary, "CONFIG", "SET", "cluster-announce-port", port)
        try:
            one = clients.probe_client(f"redis+cluster://{HOST}:{primary.port}", PREFIX)
            said = rf"no answer from {HOST}:{port}, which the cluster names .*: Protocol Error"
            with closing(one), pytest.raises(ServerUnreachable, match=said):
                Store(one, prefix=PREFIX).run(command("PING"))
        finally:
            cluster.ask(primary, "CONFIG", "SET", "cluster-announce-port", 0)
            cluster.until_served_by(slot, primary)


@contextmanager
def answering_http() -> Iterator[int]:
    """The port of something that takes connections and is no Redis."""

    class Refuses(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.TCPServer((HOST, 0), Refuses) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.rest
def test_another_database_than_0_needs_a_server_that_has_it(cluster: Cluster) -> None:
    with (
        Bridge(f"{cluster.url}/1", prefix=PREFIX) as bridge,
        pytest.raises(ServerUnsuitable, match=r"another database than 0|`cluster-databases`"),
    ):
        bridge.count()


@pytest.mark.rest
def test_numbered_databases_of_a_cluster_are_taken_apart() -> None:
    with (
        Cluster(SERVERS[EMBEDDED], replicas=0, options={"cluster-databases": "2"}) as cluster,
        Bridge(f"{cluster.url}/1", prefix=PREFIX) as one,
        Bridge(cluster.url, prefix=PREFIX) as zero,
    ):
        one.make_task("mail.send", [1], "1h", id="a")
        assert (one.count().pending, zero.count().pending) == (1, 0)
