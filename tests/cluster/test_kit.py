"""What the tests of clusters do to real nodes, and that it has the effect that they rely on."""

import pytest
import redis
from redis import exceptions

from expirebridge.embedded.cluster import SLOTS
from expirebridge.embedded.server import EmbeddedServer
from tests.kit.cluster import TAG, Cluster
from tests.kit.servers import EMBEDDED, hanging


def test_every_slot_has_a_primary_with_a_replica(cluster: Cluster) -> None:
    ranges = cluster.ask(cluster.nodes[0], "CLUSTER", "SLOTS")
    assert sum(end - start + 1 for start, end, *_ in ranges) == SLOTS
    primaries = [cluster.primary_of(start) for start, *_ in ranges]
    replicas = [cluster.replica_of(primary) for primary in primaries]
    assert {*primaries, *replicas} == set(cluster.nodes)
    for replica in replicas:
        assert cluster.ask(replica, "ROLE")[0] == b"slave"


@pytest.mark.rest
def test_a_failover_in_order_loses_nothing(cluster: Cluster, slot: int) -> None:
    primary = cluster.primary_of(slot)
    promoted = cluster.fail_over(primary)
    assert promoted is not primary
    cluster.until_well()
    assert cluster.replica_of(promoted) is primary
    with cluster.client(promoted) as client:
        assert client.dbsize() == 3


@pytest.mark.rest
def test_a_killed_primary_is_replaced_and_comes_back_as_a_replica(
    cluster: Cluster, slot: int
) -> None:
    primary = cluster.primary_of(slot)
    replica = cluster.replica_of(primary)
    cluster.kill(primary)
    cluster.until_served_by(slot, replica)
    with cluster.client(replica) as client:
        assert client.dbsize() == 3
    cluster.restart(primary)
    assert cluster.replica_of(replica) is primary


@pytest.mark.rest
def test_a_stopped_primary_is_replaced_and_steps_down(cluster: Cluster, slot: int) -> None:
    primary = cluster.primary_of(slot)
    replica = cluster.replica_of(primary)
    with hanging(primary):
        cluster.until_served_by(slot, replica)
    cluster.until_well()
    assert cluster.replica_of(replica) is primary


@pytest.mark.rest
@pytest.mark.parametrize("server_name", [EMBEDDED], indirect=True)
def test_a_slot_migrates_at_once(cluster: Cluster, slot: int, target: EmbeddedServer) -> None:
    source = cluster.primary_of(slot)
    cluster.migrate(slot, target)
    with cluster.client(target) as client:
        assert client.exists(f"{TAG}0", f"{TAG}1", f"{TAG}2") == 3
    with cluster.client(source) as client, pytest.raises(exceptions.MovedError):
        client.get(f"{TAG}0")
    cluster.migrate(slot, source)


@pytest.mark.rest
def test_a_move_left_half_way_is_on_both_sides(
    cluster: Cluster, slot: int, target: EmbeddedServer
) -> None:
    source = cluster.primary_of(slot)
    cluster.begin_move(slot, target, keys=1)
    held = [cluster.ask(node, "CLUSTER", "COUNTKEYSINSLOT", slot) for node in (source, target)]
    assert held == [2, 1]
    assert cluster.primary_of(slot) is source
    with cluster.client(source) as client, pytest.raises(exceptions.AskError) as asked:
        client.get(f"{TAG}never")
    assert asked.value.port == target.port
    with cluster.client(target) as client, pytest.raises(exceptions.MovedError) as moved:
        client.get(f"{TAG}never")
    assert moved.value.port == source.port
    cluster.finish_move(slot, target)


@pytest.mark.rest
def test_a_move_is_undone(cluster: Cluster, slot: int, target: EmbeddedServer) -> None:
    source = cluster.primary_of(slot)
    cluster.begin_move(slot, target)
    cluster.undo_move(slot, target)
    with cluster.client(source) as client:
        assert client.exists(f"{TAG}0", f"{TAG}1", f"{TAG}2") == 3
        assert client.get(f"{TAG}never") is None


@pytest.mark.rest
def test_a_move_key_by_key_is_finished(cluster: Cluster, slot: int, target: EmbeddedServer) -> None:
    source = cluster.primary_of(slot)
    for begun_at, ends_at in ((source, target), (target, source)):
        assert cluster.primary_of(slot) is begun_at
        cluster.begin_move(slot, ends_at, keys=2)
        cluster.finish_move(slot, ends_at)
        with cluster.client(ends_at) as client:
            assert client.exists(f"{TAG}0", f"{TAG}1", f"{TAG}2") == 3


@pytest.mark.rest
def test_a_client_of_one_node_follows_nothing(
    cluster: Cluster, slot: int, target: EmbeddedServer
) -> None:
    with cluster.client(target) as client, pytest.raises(redis.ResponseError, match=str(slot)):
        client.get(f"{TAG}0")
