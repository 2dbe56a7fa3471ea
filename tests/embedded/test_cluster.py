"""The embedded cluster: started, stopped, killed, and started again from its directory."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, EmbeddedServerError
from expirebridge.embedded.cluster import BUS, SLOTS, EmbeddedCluster, free_ports
from expirebridge.embedded.server import HOST
from tests.kit.invoked import run
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND, children_of, until_ended
from tests.kit.servers import SERVERS

PREFIX = "{eb}expirebridge"


@contextmanager
def command(*words: str | Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`expirebridge server` as a process, and the URL that it prints."""
    process = subprocess.Popen(
        [*COMMAND, "server", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            yield process, process.stdout.readline().partition(" ")[0]
        finally:
            with until_ended(children_of(process.pid)):
                process.kill()


def first_port(url: str) -> int:
    return int(url.split(":")[2].partition(",")[0])


def make_a_task(url: str) -> str:
    """Make a task on whichever node has its slot; return the URL of that node."""
    for port in range(first_port(url), first_port(url) + 3):
        node = f"redis://{HOST}:{port}/0"
        with redis.Redis.from_url(node) as client:
            slot = client.execute_command("CLUSTER", "KEYSLOT", PREFIX)
            [here] = [
                each for each in client.execute_command("CLUSTER", "SLOTS") if each[2][1] == port
            ]
        if here[0] <= slot <= here[1]:
            with Bridge(node, prefix=PREFIX) as bridge:
                bridge.make_task("mail.send", [42], "24h", id="kept")
            return node
    raise AssertionError("no node has the slot")


@pytest.mark.parametrize("replicas", ["0", pytest.param("1", marks=pytest.mark.rest)])
def test_it_ends_in_order_and_starts_again_with_its_tasks(tmp_path: Path, replicas: str) -> None:
    words = ("--cluster", "3", "--replicas", replicas, "--port", str(free_ports(6)[0]))
    with command(*words, "--dir", tmp_path) as (process, url):
        assert url == "redis+cluster://" + ",".join(
            f"{HOST}:{int(words[-1]) + number}" for number in range(3)
        )
        node = make_a_task(url)
        nodes = children_of(process.pid)
        with until_ended(nodes):
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    with command(*words, "--dir", tmp_path), Bridge(node, prefix=PREFIX) as bridge:
        assert bridge.get("kept") is not None


@pytest.mark.parametrize("words", [pytest.param(("--cluster", "3"), marks=pytest.mark.rest), ()])
def test_nothing_is_left_when_it_is_killed(tmp_path: Path, words: tuple[str, ...]) -> None:
    port = str(free_ports(3)[0])
    with command(*words, "--port", port, "--dir", tmp_path) as (process, _):
        left = children_of(process.pid)
        assert len(left) >= 2
        with until_ended(left):
            process.kill()


@pytest.mark.rest
def test_a_node_that_ends_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    port = free_ports(3)[0]
    with command("--cluster", "3", "--port", str(port), "--dir", tmp_path) as (process, _):
        assert process.stderr is not None
        for number in (1, 0, 2):
            with redis.Redis(port=port + number) as client:
                os.kill(client.info("server")["process_id"], signal.SIGKILL)
            said = process.stderr.readline()
            assert said == (
                f"expirebridge: the node on port {port + number} exited by itself with code -9\n"
            )
        assert process.stderr.read() == "expirebridge: no node of the cluster is left\n"
        assert process.wait(PATIENCE) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--replicas", "1"), "replicas: only a cluster has them: add --cluster 3"),
        (("--cluster", "2"), "cluster=2: a cluster needs 3 primaries or more"),
        (("--cluster", "1"), "for one server leave --cluster out"),
        (("--cluster", "3", "--port", "55534"), "choose one from 1 to 55533"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    result = run("server", *words, "--dir", tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert expected in result.stderr


@pytest.mark.parametrize("above", [2, BUS + 1])
def test_ports_that_are_taken_are_named(tmp_path: Path, above: int) -> None:
    port = free_ports(3)[0]
    with socket.create_server((HOST, port + above)):
        result = run("server", "--cluster", "3", "--port", str(port), "--dir", tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert f"port {port + above}: in use; 3 nodes need {port} to {port + 2}" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rest
@pytest.mark.parametrize("name", SERVERS)
def test_a_directory_starts_only_the_cluster_that_it_holds(tmp_path: Path, name: str) -> None:
    def cluster(primaries: int, replicas: int, above: int = 0) -> EmbeddedCluster:
        return EmbeddedCluster(
            primaries,
            replicas=replicas,
            binary=SERVERS[name],
            port=port + above,
            directory=tmp_path,
        )

    port = free_ports(7)[0]
    with cluster(3, 1) as made:
        ids = [made.ask(node, "CLUSTER", "MYID") for node in made.nodes]
    with pytest.raises(EmbeddedServerError, match="of 3 primaries among 6 nodes, and not of 6"):
        cluster(6, 0).start()
    with pytest.raises(EmbeddedServerError, match="of 6 nodes, which begin at port"):
        cluster(3, 0).start()
    with pytest.raises(EmbeddedServerError, match=rf"and not of 6 that begin at {port + 1}"):
        cluster(3, 1, above=1).start()
    with cluster(3, 1) as made:
        assert [made.ask(node, "CLUSTER", "MYID") for node in made.nodes] == ids


@pytest.mark.rest
def test_an_interrupted_start_is_repeated_unless_there_is_data(tmp_path: Path) -> None:
    port = free_ports(3)[0]
    with EmbeddedCluster(port=port, directory=tmp_path) as cluster:
        second = cluster.nodes[1]
        cluster.ask(second, "CLUSTER", "RESET", "HARD")
    with EmbeddedCluster(port=port, directory=tmp_path) as cluster:
        _, second, third = cluster.nodes
        assert f"cluster_slots_assigned:{SLOTS}" in cluster.ask(second, "CLUSTER", "INFO").decode()
        cluster.ask(third, "SET", "{eb}key", "value")
        cluster.ask(second, "CLUSTER", "RESET", "HARD")
    with pytest.raises(EmbeddedServerError, match=r"refused CLUSTER RESET: .*keys"):
        EmbeddedCluster(port=port, directory=tmp_path).start()
