"""A primary that sentinels name: producers and listeners follow it to whichever server it is."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from subprocess import PIPE

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, ServerUnreachable, ServerUnsuitable, State
from expirebridge.connection import clients, several_servers
from expirebridge.connection import sentinel as sentinel_addresses
from expirebridge.connection.urls import Address
from expirebridge.embedded.server import HOST, EmbeddedServer, free_port
from expirebridge.hooks import FailedOver, Gap
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls.call import command
from tests.kit.logs import Log
from tests.kit.patience import PATIENCE
from tests.kit.sentinels import NAME, URL_LOGIN, URL_SENTINEL_LOGIN, Sentinels
from tests.kit.servers import FEW, SERVERS
from tests.kit.witness import Witness, listening


@pytest.fixture(params=FEW)
def binary(request: pytest.FixtureRequest) -> Path:
    return SERVERS[request.param]


@pytest.fixture
def sentinels(binary: Path) -> Iterator[Sentinels]:
    with Sentinels(binary) as sentinels:
        yield sentinels


def ask(url: str) -> None:
    """Ask once, as a command does that must answer soon."""
    with closing(Store(clients.probe_client(url), prefix="expirebridge")) as store:
        store.run(command("PING"))


async def test_an_orderly_failover_is_followed_by_all(sentinels: Sentinels) -> None:
    first, second = sentinels.servers
    witness = Witness()
    ended = asyncio.Event()

    async def note() -> None: ...

    async def hold() -> None:
        await ended.wait()

    async with listening(Settings(url=sentinels.url), witness, note=note, hold=hold) as listener:
        await witness.until_hearing()
        old_store = listener._servers.consumers[0].store
        async with AsyncBridge(sentinels.url) as awaits:
            held = await awaits.make_task("test.hold", [], 0)
            before = await awaits.make_task("test.note", [], 0)
            await witness.until_ended(1)
            later = await awaits.make_task("test.note", [], 2)
        sentinels.until_in_step()
        sentinels.fail_over()
        await witness.until(lambda: witness.seen(FailedOver))
        await witness.until(lambda: sum("subsc" in g.reason for g in witness.seen(Gap)) == 2)
        # What is written to the old primary until it learns of that is lost with it, as
        # docs/explanation/guarantees.md says.
        await asyncio.to_thread(sentinels.until_replicating_from, second)
        # A role that was about to send opens a connection to the old primary once more.
        await old_store.run(command("PING"))
        async with AsyncBridge(sentinels.url) as awaits:
            await awaits.make_task("test.note", [], 0)
        with Bridge(sentinels.url) as waits:
            after = waits.make_task("test.note", [], 0)
            with sentinels.client(second) as client:
                client.set("foreign:?test.note?[]", "", px=100)
            await witness.until_ended(5)
            ended.set()
            await witness.until_ended(6)
            tasks = [waits.get(task.id) for task in (held, before, later, after)]
            assert waits.count().listeners == 1
    opened = old_store.client.connection_pool._available_connections
    assert opened
    assert not any(one.is_connected for one in opened)
    [followed] = witness.seen(FailedOver)
    assert followed == FailedOver(server=f"{HOST}:{second.port}", before=f"{HOST}:{first.port}")
    assert any("another server is the primary" in gap.reason for gap in witness.seen(Gap))
    for task in tasks:
        assert task is not None
        assert (task.state, task.attempt, task.lapses) == (State.SUCCEEDED, 1, 0)


@pytest.mark.rest
async def test_a_demoted_primary_is_not_believed_what_it_reports_as_deleted(
    sentinels: Sentinels, log: Log
) -> None:
    """What expires on its primary a replica reports as deleted. Nobody cuts the subscription here:
    no sentinel is there to do so, and none to say where the primary is."""
    first, second = sentinels.servers
    witness = Witness()

    async def note() -> None: ...

    async with (
        listening(Settings(url=sentinels.url), witness, note=note),
        AsyncBridge(sentinels.url) as bridge,
    ):
        await witness.until_hearing()
        task = await bridge.make_task("test.note", [], 3600)
        sentinels.until_in_step()
        for sentinel in sentinels.sentinels:
            sentinel.kill()
        with sentinels.client(first) as old, sentinels.client(second) as new:
            new.replicaof("NO", "ONE")
            old.replicaof(HOST, str(second.port))
            sentinels.until_replicating_from(second)
            # Before its time: to a listener on the new primary, its end says "run it now".
            new.pexpire(task.key, 1)
            await log.until("deletions ignored")
        with Bridge(sentinels.server_url(second)) as there:
            found = there.get(task.id)
    assert found is not None
    assert found.state is State.PENDING


@pytest.mark.rest
def test_producers_outlast_the_death_of_a_primary(sentinels: Sentinels) -> None:
    first, second = sentinels.servers
    with Bridge(sentinels.url) as bridge:
        made = bridge.make_task("test.note", [], 60)
        sentinels.until_in_step()
        first.kill()
        sentinels.until_primary(second)
        assert bridge.make_task("test.note", [], 60).id != made.id
        assert bridge.count().pending == 2
    assert several_servers.primary_of(sentinels.url) is not None


@pytest.mark.rest
def test_an_idle_connection_is_not_used_for_a_superseded_primary(sentinels: Sentinels) -> None:
    """It would be written to, and nobody would read it: the sentinels cannot demote it."""
    first, second = sentinels.servers
    with Bridge(sentinels.url) as bridge:
        bridge.make_task("test.note", [], 60)
        sentinels.until_in_step()
        sentinels.cut_off(first)
        sentinels.until_primary(second)
        # The connection is as old as the answer of the sentinels may be.
        bridge._store.client.connection_pool.connection_kwargs["place"]._next = 0
        bridge.make_task("test.note", [], 60)
    with Bridge(sentinels.server_url(first)) as old, Bridge(sentinels.server_url(second)) as new:
        assert (old.count().pending, new.count().pending) == (1, 2)


@pytest.mark.rest
def test_without_sentinels_the_known_primary_stays(sentinels: Sentinels) -> None:
    with Bridge(sentinels.url) as bridge:
        bridge.make_task("test.note", [], 60)
        place = bridge._store.client.connection_pool.connection_kwargs["place"]
        for sentinel in sentinels.sentinels:
            sentinel.kill()
        place._next = 0
        bridge.make_task("test.note", [], 60)
        bridge._store.client.connection_pool.disconnect()
        assert bridge.count().pending == 2
    with pytest.raises(ServerUnreachable, match="the sentinels name no primary 'mymaster': 127"):
        ask(sentinels.url)


@pytest.mark.rest
def test_what_no_sentinel_says_is_told_once_by_the_error(sentinels: Sentinels, log: Log) -> None:
    with pytest.raises(ServerUnsuitable, match=r"no primary 'other': .* but 'mymaster'"):
        ask(sentinels.url.replace(f"/{NAME}/", "/other/"))
    assert "sentinels disagree" not in log.events()


@pytest.mark.rest
def test_a_server_that_is_no_sentinel_is_named_with_the_url_that_it_needs(
    sentinels: Sentinels,
) -> None:
    port = sentinels.servers[0].port
    said = rf"no primary 'm': {HOST}:{port} is not a sentinel; begin the URL of a server with redis"
    with pytest.raises(ServerUnsuitable, match=said):
        ask(f"redis+sentinel://{HOST}:{port}/m?sentinel_username=app&sentinel_password=s3cret%2F1")


def test_a_majority_of_the_sentinels_decides(sentinels: Sentinels) -> None:
    first, second = sentinels.servers
    one, two, _ = sentinels.sentinels
    sentinels.misinform(one, second)
    assert one.primary() == second.port
    primary = several_servers.primary_of(sentinels.url)
    assert primary is not None
    assert primary.find().port == first.port
    # Two that name a replica are not believed, for it says that it is one.
    sentinels.misinform(two, second)
    assert primary.find().port == first.port
    with pytest.raises(ServerUnreachable, match="it is a replica"):
        ask(sentinels.url)


@pytest.mark.rest
def test_one_sentinel_is_enough_if_it_names_a_primary(sentinels: Sentinels, log: Log) -> None:
    one, two, _ = sentinels.sentinels
    one.kill()
    two.stop()
    primary = several_servers.primary_of(sentinels.url)
    assert primary is not None
    assert primary.find() == primary.find() == (HOST, sentinels.servers[0].port)
    two.resume()
    primary.find()
    # Each once, however often they are asked.
    assert (log.events()["sentinels disagree"], log.events()["sentinels agree"]) == (1, 1)


@pytest.mark.rest
def test_threads_that_wait_for_slow_sentinels_share_one_answer(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel_addresses, "ASK_EVERY", 3600.0)
    primary = several_servers.primary_of(sentinels.url)
    assert primary is not None
    known = primary.find()
    _, *others = sentinels.sentinels
    for sentinel in others:
        sentinel.stop()
    asked, choose = list[int](), primary._choose

    def choosing() -> Address:
        asked.append(threading.get_ident())
        return choose()

    monkeypatch.setattr(primary, "_choose", choosing)
    primary._next = 0
    with ThreadPoolExecutor(30) as threads:
        list(threads.map(lambda _: primary.refresh(), range(30)))
    assert len(asked) == 1
    assert primary.known == known
    assert not primary.is_due
    for sentinel in others:
        sentinel.resume()


FORK = """
import os, sys, threading
from expirebridge.connection import clients, several_servers

primary = several_servers.primary_of(sys.argv[1])
known = primary.find()
print("found", flush=True)
sys.stdin.readline()
threading.Thread(target=primary.find).start()
while not primary._lock.locked():
    pass
if os.fork() == 0:
    assert primary.find() == known
    print("found in the child", flush=True)
    os._exit(0)
os._exit(os.wait()[1])
"""


@pytest.mark.rest
def test_a_fork_while_another_thread_waits_for_the_sentinels(sentinels: Sentinels) -> None:
    """As web servers with workers do, that load the application first."""
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, sentinels.url]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "found\n"
        _, *others = sentinels.sentinels
        for sentinel in others:
            sentinel.stop()
        try:
            said, _ = program.communicate("\n", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
        finally:
            for sentinel in others:
                sentinel.resume()
    assert said == "found in the child\n"
    assert program.returncode == 0


async def test_a_plain_server_is_asked_nothing_more(
    settings: Settings, client: redis.Redis, bridge: Bridge
) -> None:
    witness = Witness()

    async def note() -> None: ...

    client.config_resetstat()
    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        deleted = await asyncio.to_thread(bridge.make_task, "test.note", [], 3600)
        client.delete(deleted.key)
        await asyncio.to_thread(bridge.make_task, "test.note", [], 0)
        await witness.until_ended(1)
        while (found := await asyncio.to_thread(bridge.get, deleted.id)) is not None:
            if found.state is State.CANCELLED:
                break
    asked: dict[str, object] = client.info("commandstats")
    assert "cmdstat_role" not in asked
    assert not any("sentinel" in name for name in asked)


def test_a_sentinel_that_does_not_know_the_name_says_which_it_knows(sentinels: Sentinels) -> None:
    url = sentinels.url.replace(f"/{NAME}/", "/other/")
    with (
        pytest.raises(ServerUnsuitable, match="does not know 'other', but 'mymaster'"),
        Bridge(url) as bridge,
    ):
        bridge.count()


@pytest.mark.rest
def test_a_wrong_password_is_said_to_be_the_sentinels_or_the_primarys(
    sentinels: Sentinels,
) -> None:
    wrong = sentinels.url.replace(URL_SENTINEL_LOGIN, "sentinel_password=wrong")
    with pytest.raises(ServerUnsuitable, match="sentinel_password=") as caught:
        Bridge(wrong).count()
    assert "refuses the login" in str(caught.value)
    wrong = sentinels.url.replace(URL_LOGIN, "app:wrong")
    with pytest.raises(Exception, match="the server refused the login"):
        Bridge(wrong).count()


@pytest.mark.rest
def test_a_server_is_no_sentinel_and_a_sentinel_no_server(sentinels: Sentinels) -> None:
    port = sentinels.sentinels[0].port
    for number in (0, 1):
        url = f"redis://:w0rd%262@{HOST}:{port}/{number}"
        with pytest.raises(ServerUnsuitable, match=r"redis\+sentinel://HOST:26379/NAME/1"):
            Bridge(url).count()
    with EmbeddedServer() as server, pytest.raises(ServerUnsuitable, match="is not a sentinel"):
        Bridge(f"redis+sentinel://{HOST}:{server.port}/{NAME}/1").count()
    with pytest.raises(ServerUnreachable, match="does not answer"):
        ask(f"redis+sentinel://{HOST}:{free_port()}/{NAME}/1")


@pytest.mark.rest
def test_a_primary_that_cannot_be_reached_is_named(sentinels: Sentinels) -> None:
    nowhere = free_port()
    for sentinel in sentinels.sentinels:
        sentinel.ask("SENTINEL", "REMOVE", NAME)
        sentinel.ask("SENTINEL", "MONITOR", NAME, HOST, nowhere, 2)
    with pytest.raises(ServerUnreachable, match=f"name {HOST}:{nowhere}, .*announce-ip"):
        ask(sentinels.url)


@pytest.mark.rest
def test_a_client_of_ones_own_may_come_from_redis_py(sentinels: Sentinels) -> None:
    hosts = [(HOST, sentinel.port) for sentinel in sentinels.sentinels]
    sentinel = redis.Sentinel(hosts, sentinel_kwargs={"password": "w0rd&2"})
    client = sentinel.master_for(NAME, db=1, username="app", password="s3cret/1")
    with Bridge(client=client) as bridge:
        assert bridge.count().pending == 0
