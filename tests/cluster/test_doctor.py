"""What operators see of a cluster whose database has several partitions: each node is looked at."""

import asyncio
import json
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from typer.testing import CliRunner, Result

from expirebridge import AsyncBridge, Bridge
from expirebridge.checks import Finding, Level, examine
from expirebridge.connection import clients
from expirebridge.embedded.server import HOST, EmbeddedServer
from expirebridge.foreign import function_library
from expirebridge.hooks import End
from expirebridge.ledger import Ledger
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.schema import create
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole
from expirebridge.store.partitions import Partitions
from tests.kit.apart import LAYOUT, homes_of
from tests.kit.cluster import Cluster
from tests.kit.invoked import app
from tests.kit.patience import PATIENCE
from tests.kit.servers import hanging
from tests.kit.witness import Witness, listening

MANY = [f"task-{number}" for number in range(32)]
MINE = function_library.version()


@pytest.fixture
def bridge(cluster: Cluster) -> Iterator[Bridge]:
    with Bridge(cluster.url) as bridge:
        yield bridge


def run(*words: str, url: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*words, "--url", url], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def examined(url: str, role: LoginRole = LoginRole.LISTENER) -> dict[str, list[Finding]]:
    """What the doctor finds."""
    found = dict[str, list[Finding]]()
    with closing(clients.probe_client(url, LAYOUT.prefix)) as client:
        store = Partitions(client, prefix=LAYOUT.prefix)
        for one in examine(store, Settings(url=url), role):
            found.setdefault(one.check, []).append(one)
    return found


def primaries(cluster: Cluster) -> list[EmbeddedServer]:
    return [node for node in cluster.nodes if cluster.ask(node, "ROLE")[0] == b"master"]


def named(node: EmbeddedServer) -> str:
    return f"{HOST}:{node.port}"


def tags_at(cluster: Cluster, node: EmbeddedServer) -> set[str]:
    """The tags of the partitions on a node."""
    return {
        LAYOUT.hash_tag_of(number)
        for number, prefix in enumerate(LAYOUT.prefixes())
        if cluster.primary_of(cluster.slot_of(prefix)) is node
    }


@contextmanager
def away(cluster: Cluster, node: EmbeddedServer) -> Iterator[None]:
    """While the block runs, a node and its replica hang."""
    try:
        with ExitStack() as stack:
            for one in (cluster.replica_of(node), node):
                stack.enter_context(hanging(one))
            yield
    finally:
        cluster.until_well()


@contextmanager
def dead(cluster: Cluster, node: EmbeddedServer) -> Iterator[None]:
    """While the block runs, a node and its replica take no connections."""
    cluster.until_in_step(node)
    replica = cluster.replica_of(node)
    cluster.kill(replica)
    cluster.kill(node)
    try:
        yield
    finally:
        replica.start()
        cluster.restart(node)


@contextmanager
def login(cluster: Cluster, *rules: str) -> Iterator[str]:
    """The URL of a user that every node knows, with these rights."""
    words = ("ACL", "SETUSER", "limited", "reset", "on", ">secret", "~*", "&*", "+@all", *rules)
    for node in cluster.nodes:
        cluster.ask(node, *words)
    try:
        yield cluster.url.replace("://", "://limited:secret@")
    finally:
        for node in cluster.nodes:
            cluster.ask(node, "ACL", "DELUSER", "limited")


def is_followed(cluster: Cluster) -> bool:
    """Whether each primary knows a replica of each, which takes a while after one has hung."""
    return all(
        len(share) > 3  # first and last slot, the primary, its replicas
        for node in primaries(cluster)
        for share in cluster.ask(node, "CLUSTER", "SLOTS")
    )


async def until_followed(cluster: Cluster) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_followed(cluster):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.05)


async def test_a_cluster_with_a_listener_is_well(cluster: Cluster, bridge: Bridge) -> None:
    witness = Witness()
    async with listening(Settings(url=cluster.url), witness, act=lambda: None):
        await until_subscribed(cluster)
        await until_followed(cluster)
        found = await asyncio.to_thread(examined, cluster.url)
    faults = {name: [str(one) for one in some if one.level is not Level.OK]
              for name, some in found.items()}  # fmt: skip
    assert {name for name, some in faults.items() if some} == {"persistence", "failover"}, (
        faults.get("cluster")
    )
    assert faults["persistence"][0].startswith("all 3 nodes: appendonly is no")
    assert faults["failover"][0].startswith("all 3 nodes: min-replicas-to-write is 0: a primary")
    assert all(len(some) == 1 for some in found.values())
    counts = re.findall(r"(\d+) at \S+", str(found["cluster"][0]))
    assert sorted(map(int, counts)) == [5, 5, 6]
    assert {"version", "role", "eviction", "memory", "events", "buffers", "clock", "rights",
            "listeners", "overdue", "subscriptions", "functions", "partitions", "data",
            "round trip", "misplaced keys", "coverage"} < found.keys()  # fmt: skip


async def until_subscribed(cluster: Cluster) -> None:
    """Wait until somebody hears the key events of each node: nothing else says so."""
    await asyncio.to_thread(_until_counted, cluster, primaries(cluster), heard=True)


def _until_counted(cluster: Cluster, nodes: list[EmbeddedServer], *, heard: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    for node in nodes:
        while (cluster.ask(node, "PUBSUB", "NUMSUB", "__keyevent@0__:expired")[1] > 0) != heard:
            assert time.monotonic() < deadline, f"nobody hears {named(node)}, or still"
            time.sleep(0.05)


@pytest.mark.rest
async def test_a_node_that_no_listener_hears_is_named(cluster: Cluster, bridge: Bridge) -> None:
    deaf = primaries(cluster)[1]
    with login(cluster) as url:
        async with listening(Settings(url=url), Witness(), act=lambda: None):
            await until_subscribed(cluster)
            cluster.ask(deaf, "ACL", "SETUSER", "limited", "-subscribe")
            cluster.ask(deaf, "CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.to_thread(_until_counted, cluster, [deaf], heard=False)
            [finding] = (await asyncio.to_thread(examined, cluster.url))["subscriptions"]
    assert finding.level is Level.WARNING
    tags = tags_at(cluster, deaf)
    both = (
        r"\(0 of 1 to expirebridge:doorbell:0 of (.*), 0 of 1 to __keyevent@0__:expired of (.*)\):"
    )
    for named_ones in re.findall(both, finding.message)[0]:
        assert set(re.findall(r"\{\w+\}", named_ones)) <= tags
        assert named_ones.count("{") == min(len(tags), 5)


@pytest.mark.rest
def test_other_data_and_overwritten_keys_are_found_at_any_node(
    cluster: Cluster, bridge: Bridge
) -> None:
    bridge.make_task("mail.send", [1], "1h", id="a")
    last = primaries(cluster)[2]
    tag = min(tags_at(cluster, last))
    cluster.ask(last, "SET", f"{tag}alien", 1)
    cluster.ask(last, "SET", f"{tag}expirebridge:broken:x", 1)  # ours
    cluster.ask(last, "SET", f"{tag}a:?mail.send?broken", 1)  # looks like a task's
    [finding] = examined(cluster.url)["data"]
    assert finding.message.startswith(f"{named(last)}: the database holds keys that are not")
    assert "(1 of about" in finding.message
    cluster.ask(last, "DEL", f"{tag}alien")
    cluster.ask(last, "DEL", f"{tag}expirebridge:pending")
    cluster.ask(last, "SET", f"{tag}expirebridge:pending", "x")
    [finding] = examined(cluster.url)["data"]
    assert finding.level is Level.ERROR
    assert finding.message.startswith(f"another client overwrote {tag}expirebridge:pending: ")


@pytest.mark.rest
def test_settings_that_the_nodes_keep_to_themselves_are_limits(
    cluster: Cluster, bridge: Bridge
) -> None:
    bridge.make_task("mail.send", [1], "1h", id="a")
    with login(cluster, "-config", "-client", "-acl", "-debug") as url:
        found = examined(url)
    limits = {name: some[0].message for name, some in found.items()
              if some[0].level is Level.LIMIT}  # fmt: skip
    assert limits.keys() == {"events", "buffers", "coverage"}
    assert all(message.startswith("all 3 nodes: ") for message in limits.values())
    assert not [one for some in found.values() for one in some if one.level is Level.ERROR]
    assert found["round trip"][0].level is Level.OK


@pytest.mark.rest
async def test_with_a_node_away_the_others_are_looked_at(cluster: Cluster, bridge: Bridge) -> None:
    """That of the first partition: it is the one that is asked for what concerns no partition."""
    bridge.make_tasks([{"func": "mail.send", "delay": "1h", "id": id} for id in MANY])
    home = next(iter(homes_of(cluster, [LAYOUT.tag_of(0)]).values()))
    tags = tags_at(cluster, home)
    async with listening(Settings(url=cluster.url), Witness(), act=lambda: None):
        await until_subscribed(cluster)
        with dead(cluster, home):
            found = await asyncio.to_thread(examined, cluster.url)
            probe = await asyncio.to_thread(run, "check", url=cluster.url, code=1)
            here = await asyncio.to_thread(run, "check", "--here", url=cluster.url)
            knows = await asyncio.to_thread(run, "handlers", "--fleet", url=cluster.url)
    [missing] = found["nodes"]
    assert missing.level is Level.ERROR
    assert missing.message.startswith(f"{named(home)} was not looked at: ")
    assert found["round trip"][0].level is found["listeners"][0].level is Level.OK
    [asked] = found["partitions"]
    assert asked.level is Level.ERROR
    assert set(re.findall(r"\{\w+\}", asked.message)) == tags
    assert probe.stdout.startswith("not ok: not asked: partitions ")
    assert here.stdout.startswith("ok: 1 listener beats")
    assert "not asked: partitions " in here.stdout
    assert "test.act" in knows.stdout


@pytest.mark.rest
async def test_the_rights_that_are_printed_for_a_cluster_suffice(cluster: Cluster) -> None:
    lines = [shlex.split(line) for line in run("acl", url=cluster.url).stdout.splitlines()]
    for node in cluster.nodes:
        for words in lines:
            cluster.ask(node, *(word.replace("PASSWORD", "secret") for word in words))
    producer, listener, dashboard = (
        cluster.url.replace("://", f"://{words[2]}:secret@") for words in lines
    )
    witness = Witness()
    async with (
        listening(Settings(url=listener), witness, act=lambda: None),
        AsyncBridge(producer) as bridge,
    ):
        made = [{"func": "test.act", "delay": 0, "id": id} for id in MANY]
        await bridge.make_tasks(made)
        await witness.until_ended(len(MANY), End.SUCCEEDED)
        roles = zip((producer, listener, dashboard), lines, strict=True)
        for url, words in roles:
            role = LoginRole(words[2].rpartition("-")[2])
            found = await asyncio.to_thread(examined, url, role)
            assert found["rights"][0].level is Level.OK
    for node in cluster.nodes:
        cluster.ask(node, "ACL", "DELUSER", *(words[2] for words in lines))


# Functions for clients in other languages


@pytest.fixture
def no_functions(cluster: Cluster) -> Iterator[list[EmbeddedServer]]:
    """The primaries, without functions before and after."""
    for node in primaries(cluster):
        cluster.ask(node, "FUNCTION", "FLUSH")
    yield primaries(cluster)
    for node in primaries(cluster):
        cluster.ask(node, "FUNCTION", "FLUSH")


def call_at_each(cluster: Cluster, bridge: Bridge) -> int:
    """Make a task in each partition, by a plain client of its node; return how many there are."""
    for number, prefix in enumerate(LAYOUT.prefixes()):
        node = cluster.primary_of(cluster.slot_of(prefix))
        words = ("FCALL", "expirebridge_make", 1, prefix, "mail.send", "[1]", 60_000)
        made = cluster.ask(node, *words, "id", f"{LAYOUT.tag_of(number)}@x", "if_exists", "replace")
        assert made[2].decode().startswith(LAYOUT.hash_tag_of(number))
    return bridge.count().pending


@pytest.mark.rest
def test_functions_are_loaded_into_each_primary(
    cluster: Cluster, bridge: Bridge, no_functions: list[EmbeddedServer]
) -> None:
    bridge.create_partitions(16)
    assert "library" not in examined(cluster.url)
    told = run("functions", "load", url=cluster.url).stdout
    assert told.splitlines() == [
        f"{named(node)}: the functions of expirebridge {MINE}: loaded"
        for node in sorted(no_functions, key=lambda node: node.port)
    ]
    assert call_at_each(cluster, bridge) == 16
    [finding] = examined(cluster.url)["library"]
    assert str(finding) == f"the functions of expirebridge {MINE} at all 3 nodes"
    assert "there already" in run("functions", "load", url=cluster.url).stdout
    # A replica has them when it becomes the primary.
    cluster.until_in_step(no_functions[0])
    promoted = cluster.fail_over(no_functions[0])
    assert examined(cluster.url)["library"][0].level is Level.OK
    assert call_at_each(cluster, bridge) == 16
    cluster.fail_over(promoted)


@pytest.mark.rest
def test_a_primary_without_functions_or_with_others_is_named(
    cluster: Cluster, no_functions: list[EmbeddedServer]
) -> None:
    run("functions", "load", url=cluster.url)
    first, second, _ = no_functions
    cluster.ask(first, "FUNCTION", "FLUSH")  # as one that was added by MEET alone
    other = function_library.library_text().replace(MINE, "0.0.1")
    cluster.ask(second, "FUNCTION", "LOAD", "REPLACE", other)
    [finding] = examined(cluster.url, LoginRole.PRODUCER)["library"]
    assert finding.level is Level.WARNING
    assert f"none at {named(first)}" in finding.message
    assert f"those of version 0.0.1 at {named(second)}" in finding.message
    assert finding.remedy == "expirebridge functions load"
    newer = function_library.library_text().replace(MINE, "999.0")
    cluster.ask(second, "FUNCTION", "LOAD", "REPLACE", newer)
    [finding] = examined(cluster.url)["library"]
    assert finding.remedy == "expirebridge functions load, with the newest expirebridge"
    result = run("functions", "load", url=cluster.url, code=3)
    assert f"{named(second)}: the server has the functions of expirebridge 999.0" in result.stderr
    assert f"{named(first)}: the functions of expirebridge {MINE}: loaded" in result.stdout
    run("functions", "load", "--replace", url=cluster.url)
    assert examined(cluster.url)["library"][0].level is Level.OK


@pytest.mark.rest
def test_a_primary_that_cannot_be_reached_is_named_and_the_others_have_them(
    cluster: Cluster, no_functions: list[EmbeddedServer]
) -> None:
    gone = no_functions[1]
    with away(cluster, gone):
        result = run("functions", "load", url=cluster.url, code=1)
        assert f"{named(gone)}: no answer from" in result.stderr
        assert result.stderr.rstrip().endswith("load them again when it is back")
        assert result.stdout.count(": loaded") == 2
    # Its replica, which has none either, may have taken over.
    [finding] = examined(cluster.url)["library"]
    assert re.search(r": none at \S+;", finding.message)
    assert finding.level is Level.WARNING
    assert "loaded" in run("functions", "load", url=cluster.url).stdout
    assert examined(cluster.url)["library"][0].level is Level.OK


@pytest.mark.rest
def test_a_ledger_is_looked_at_in_each_node(
    cluster: Cluster, bridge: Bridge, tmp_path: Path
) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    settings = Settings(url=cluster.url, ledger=ledger)
    engine = create_engine(ledger)
    with engine.begin() as connection:
        create(connection, own_tables())
    items = [{"func": "a.b", "delay": 60, "id": id} for id in MANY]
    with engine.begin() as connection:
        Ledger(ledger).make_tasks(connection, items)
    engine.dispose()
    with (
        closing(LedgerEngine(settings)) as ledger_engine,
        closing(clients.producer_client(cluster.url, LAYOUT.prefix)) as client,
    ):
        for partition in ledger_engine.all_partitions(Partitions(client, prefix=LAYOUT.prefix)):
            while partition.relay_once():
                pass
    for number in (0, LAYOUT.count - 1):
        dirty = f"{LAYOUT.prefix_of(number)}:dirty"
        cluster.ask(cluster.primary_of(cluster.slot_of(dirty)), "ZADD", dirty, "1", f"x{number}")
    env = {"EXPIREBRIDGE_LEDGER": ledger, "EXPIREBRIDGE_URL": cluster.url}
    status = CliRunner().invoke(app, ["ledger", "status", "--json"], env=env)
    told = json.loads(status.stdout)["redis"]
    assert told["dirty"] == 2
    assert [one["partition"] for one in told["partitions"]] == list(range(LAYOUT.count))
    assert sum(one["number"] for one in told["partitions"]) == sum(
        one["number"] for one in json.loads(status.stdout)["passes"]
    )
    shown = CliRunner().invoke(app, ["doctor", "--role", "producer"], env=env).stdout
    assert "2 rows of the ledger do not know yet" in shown
    assert f"rows are carried; pass {told['number']} in {LAYOUT.count} partitions" in shown
