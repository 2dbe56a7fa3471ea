"""Plain clients of a cluster: docs/reference/wire-protocol.md on keys with their tag."""

import time
from collections.abc import Iterator

import pytest

from expirebridge.foreign import function_library
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout
from tests.conformance.clients import Client, ReplyError
from tests.conformance.cluster_clients import NAMES, cluster_client
from tests.conformance.stage import ClusterStage
from tests.kit.cluster import Cluster
from tests.kit.patience import until
from tests.kit.processes import run
from tests.kit.servers import FEW, SERVERS

HOUR = 3600_000
LAYOUT = PartitionLayout("expirebridge", PARTITIONS_OF_CLUSTER)
REFUSED = "TRYAGAIN|redirections|TTL exhausted|Unable to send"
LATEST = 5.0
"""Seconds by which a task may be late on a busy machine."""


@pytest.fixture(scope="module", params=FEW)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterStage]:
    """A cluster in which a listener hears key events, and the functions are loaded."""
    with Cluster(SERVERS[request.param], replicas=0) as cluster:
        made = ClusterStage(cluster, tmp_path_factory.mktemp("stage"))
        with made.listening("--log-format", "json"):
            for node in cluster.nodes:
                cluster.ask(node, "FUNCTION", "LOAD", "REPLACE", function_library.library_text())
            yield made


@pytest.fixture(scope="module", params=NAMES)
def client(request: pytest.FixtureRequest, stage: ClusterStage) -> Iterator[Client]:
    """Each client in turn."""
    made = cluster_client(request.param, stage.cluster.nodes[0].port)
    yield made
    made.close()


def tag_of(id: str) -> str:
    """The tag of an id's partition, by the table of docs/partition-tags.txt."""
    return LAYOUT.hash_tag_of(LAYOUT.partition_of(id))


def key_of(id: str) -> str:
    return f"{tag_of(id)}{id}:?acts.note?[42]"


def test_the_command_prints_the_key_of_the_table(stage: ClusterStage, name: str) -> None:
    assert run("key", name, "acts.note", "[42]", url=stage.url).stdout == f"{key_of(name)}\n"


def field(client: Client, id: str, name: str) -> str:
    """A field of a task's record."""
    return client.send("HGET", f"{tag_of(id)}expirebridge:task:{id}", name)


def test_a_key_with_its_tag_is_a_task(stage: ClusterStage, client: Client, name: str) -> None:
    """It runs once and on time; a listener makes a record, follows EXPIRE, and DEL cancels."""
    runs, later, gone = (f"{name}-{each}" for each in ("runs", "later", "gone"))
    client.send("SET", key_of(gone), "", "PX", HOUR)
    client.send("SET", key_of(later), "", "PX", HOUR)
    until(lambda: field(client, gone, "call") == field(client, later, "call") == "acts.note?[42]")
    client.send("DEL", key_of(gone))
    assert client.send("PEXPIRE", key_of(later), 2 * HOUR) == "1"
    before = time.time()
    client.send("SET", key_of(runs), "", "PX", 500)
    after = time.time()
    client.send("PEXPIRE", key_of(later), 700)
    assert before + 0.5 <= stage.ran(runs).at <= after + 0.5 + LATEST
    assert stage.ran(later).at >= after + 0.7
    until(lambda: field(client, gone, "state") == "cancelled")
    assert stage.runs(gone) == []
    assert field(client, runs, "made")


def test_a_task_is_put_off(stage: ClusterStage, client: Client, name: str) -> None:
    """Again and again; the last time counts. Each time with a longer TTL, if it had expired."""
    for id, ms in ((f"{name}-{ms}", ms) for ms in (400, 4000, 16000)):
        client.send("SET", key_of(id), "", "PX", ms)
        answers = {client.send("PEXPIRE", key_of(id), ms + more) for more in (100, 200)}
        until_ms = int(time.time() * 1000) + ms + 300
        answers.add(client.send("PEXPIREAT", key_of(id), until_ms))
        if answers == {"1"}:
            assert stage.ran(id).at * 1000 >= until_ms
            return
    raise AssertionError("this machine takes seconds for a few commands")


def test_a_key_with_a_wrong_tag_or_none_is_named_and_not_run(
    stage: ClusterStage, client: Client, name: str
) -> None:
    tags = {
        f"{name}-none": "",
        f"{name}-own": "{own}",
        f"{name}-other": LAYOUT.hash_tag_of(LAYOUT.partition_of(f"{name}-other") ^ 1),
    }
    for id, tag in tags.items():
        client.send("SET", f"{tag}{id}:?acts.note?[42]", "", "PX", 300)

    def named() -> dict[str, str]:
        lines = stage.logged("misplaced key")
        return {line["task"]: line["right"] for line in lines if line["task"] in tags}

    until(lambda: named() == {id: tag_of(id) for id in tags})
    client.send("SET", key_of(f"{name}-after"), "", "PX", 400)
    stage.ran(f"{name}-after")
    assert [stage.runs(id) for id in tags] == [[], [], []]


def test_doctor_names_misplaced_keys(stage: ClusterStage, name: str) -> None:
    """Also those that were set while nobody listened."""
    client = cluster_client("redis-py", stage.cluster.nodes[0].port)
    misplaced = f"{name}:?acts.note?[42]"
    client.send("SET", misplaced, "", "PX", HOUR)
    told = run("doctor", url=stage.url)
    client.send("DEL", misplaced)
    client.close()
    assert f"{misplaced[:-4]}... must begin with {tag_of(name)}{name}:" in told.stdout


def test_a_function_makes_a_task(stage: ClusterStage, client: Client, name: str) -> None:
    words = ("acts.note", "[7]", 50, "id", name)
    made = client.send("FCALL", "expirebridge_make", 1, f"{tag_of(name)}expirebridge", *words)
    assert made.split("\n")[:2] == ["created", name]
    assert stage.ran(name).args == [7]


def test_a_function_signals_a_task(stage: ClusterStage, client: Client, name: str) -> None:
    """The function of its deadline has no handler here."""
    prefix = f"{tag_of(name)}expirebridge"
    words = ("acts.none", "[7]", HOUR, "id", name, "on_signal", "acts.note")
    assert client.send("FCALL", "expirebridge_make", 1, prefix, *words).startswith("created")
    told = client.send("FCALL", "expirebridge_signal", 1, prefix, name, '{"ref":7}', "psp")
    assert told == "signalled"
    assert stage.ran(name).args == [7]


def test_a_function_is_refused_while_the_slot_is_half_way(
    stage: ClusterStage, client: Client, name: str
) -> None:
    """All follow ASK: some pass on what the functions answer, others repeat it and give up."""
    cluster, prefix = stage.cluster, f"{tag_of(name)}expirebridge"
    make = ("FCALL", "expirebridge_make", 1, prefix, "acts.note", "[7]")
    client.send(*make, HOUR, "id", name)
    slot = cluster.slot_of(prefix)
    source = cluster.primary_of(slot)
    target = next(node for node in cluster.nodes if node is not source)
    cluster.begin_move(slot, target, keys=cluster.ask(source, "CLUSTER", "COUNTKEYSINSLOT", slot))
    with pytest.raises(ReplyError, match=REFUSED):
        client.send("FCALL", "expirebridge_cancel", 1, prefix, name)
    with pytest.raises(ReplyError, match=REFUSED):
        client.send(*make, 50, "id", f"{name}@2")
    cluster.finish_move(slot, target)
    assert cluster.ask(target, "EXISTS", f"{prefix}:task:{name}@2") == 0
    assert cluster.ask(target, "FCALL", "expirebridge_cancel", 1, prefix, name) == b"cancelled"
