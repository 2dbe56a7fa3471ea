"""Clusters: six real nodes, and a slot that is moved about."""

from collections.abc import Iterator

import pytest

from expirebridge.embedded.cluster import SLOTS
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import ROUNDS
from tests.kit.cluster import TAG, Cluster
from tests.kit.servers import FEW, SERVERS


@pytest.fixture(scope="session", params=FEW if ROUNDS > 1 else FEW[:1])
def server_name(request: pytest.FixtureRequest) -> str:
    """Which server the nodes are; `make test-rest ROUNDS=2` takes a second one, too."""
    return str(request.param)


@pytest.fixture(scope="session")
def nodes(server_name: str) -> Iterator[Cluster]:
    with Cluster(SERVERS[server_name]) as cluster:
        yield cluster


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """Six nodes that run, agree and are empty: the same ones for all tests, whatever they did."""
    nodes.until_well()
    for slot in (0, SLOTS // 2, SLOTS - 1):
        primary = nodes.primary_of(slot)
        nodes.ask(primary, "FLUSHALL")
        nodes.ask(primary, "FUNCTION", "FLUSH")
    for node in nodes.nodes:
        nodes.ask(node, "ACL", "LOG", "RESET")
    nodes.until_listed()
    return nodes


@pytest.fixture
def slot(cluster: Cluster) -> int:
    """A slot with three keys in it, on the node of its neighbours, wherever a test has left it."""
    slot = cluster.slot_of(TAG)
    home = cluster.primary_of(slot - 1)
    if cluster.primary_of(slot) is not home:
        cluster.begin_move(slot, home)
        cluster.finish_move(slot, home)
    with cluster.client(cluster.primary_of(slot)) as client:
        client.mset({f"{TAG}{number}": "x" for number in range(3)})
    return slot


@pytest.fixture
def target(cluster: Cluster, slot: int) -> EmbeddedServer:
    """A primary that does not serve the slot."""
    serves = cluster.primary_of(slot)
    others = (cluster.primary_of(each) for each in (0, SLOTS - 1))
    return next(node for node in others if node is not serves)
