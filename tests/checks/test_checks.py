"""What a listener and the doctor find out about a server: each check seen well, and failing."""

import asyncio
import logging
import re
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, ServerReadOnly, ServerUnreachable, ServerUnsuitable
from expirebridge.checks import Finding, Level, check_health, check_server, examine
from expirebridge.checks.server import check_version
from expirebridge.connection import clients
from expirebridge.embedded.server import EmbeddedServer, embedded_binary
from expirebridge.hooks import End
from expirebridge.listener.listener import Listener
from expirebridge.settings import Doorbells, Settings
from expirebridge.store.acl import LoginRole
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from tests.kit.invoked import invoke
from tests.kit.logins import NAME, login
from tests.kit.processes import until_subscribed
from tests.kit.servers import FEW, SERVERS, AnyServer
from tests.kit.steps import age
from tests.kit.witness import Witness, listening, logged, registry_of

pytestmark = pytest.mark.servers("ends")


def findings(store: Store) -> dict[str, Finding]:
    """What a listener looks at."""
    return {finding.check: finding for finding in store.run(check_server(store.database))}


def examined(store: Store, role: LoginRole = LoginRole.LISTENER) -> dict[str, Finding]:
    """What the doctor looks at."""
    return {finding.check: finding for finding in examine(store, Settings(), role)}


def examined_at(url: str, role: LoginRole = LoginRole.LISTENER) -> dict[str, Finding]:
    with closing(Store(clients.probe_client(url), prefix="expirebridge")) as store:
        return examined(store, role)


EACH_OF_A_FEW = pytest.mark.parametrize("binary", [SERVERS[name] for name in FEW], ids=FEW)
"""For what needs servers of its own."""


Configure = Callable[[str, str], None]


@pytest.fixture
def configure(client: redis.Redis) -> Iterator[Configure]:
    """Changes settings of the server until the test ends."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, client.config_get(name)[name] or "")
        client.config_set(name, value)

    yield change
    for name, value in before.items():
        client.config_set(name, value)
    # A server does not stop before it has written the append-only file that was switched on again.
    while client.info("persistence")["aof_rewrite_in_progress"]:
        pass


def mend(client: redis.Redis, finding: Finding) -> None:
    """Do what the finding says."""
    client.execute_command(*shlex.split(finding.remedy))


async def test_a_server_with_our_configuration_and_a_listener_has_nothing_to_mend(
    store: Store, settings: Settings
) -> None:
    async with listening(settings):
        await asyncio.to_thread(until_subscribed, settings.url)
        found = await asyncio.to_thread(examined, store)
    assert {name: one.message for name, one in found.items() if one.level is not Level.OK} == {}
    assert set(found) == {
        "version", "role", "events", "eviction", "memory", "persistence", "buffers", "clock",
        "rights", "listeners", "overdue", "subscriptions", "functions", "data",
            "round trip",
    }  # fmt: skip


# The server


RECENT = re.compile(rb"(?<=\0)7(\.\d+\.\d+\0)")
"""How a Valkey says with which Redis it compares."""


async def test_an_old_server_is_refused(tmp_path: Path) -> None:
    """None that is old enough runs here: one is made that says that it is."""
    binary = tmp_path / "valkey-server"
    binary.write_bytes(RECENT.sub(rb"5\1", embedded_binary().read_bytes()))
    binary.chmod(0o755)
    with EmbeddedServer(binary=binary) as old:
        with pytest.raises(ServerUnsuitable, match=r"too old; Redis 6\.2 or later"):
            await Listener(Settings(url=old.url), registry_of()).run()
        assert examined_at(old.url)["version"].level is Level.ERROR


def test_the_oldest_version_is_recent_enough() -> None:
    assert check_version({"redis_version": "6.2.0"}).level is Level.OK
    assert check_version({"redis_version": "6.0.20"}).level is Level.ERROR


@pytest.mark.parametrize("flags", ["", "Ex", "Kxg"])
def test_missing_notifications_are_found_with_the_command_that_switches_them_on(
    store: Store, client: redis.Redis, flags: str
) -> None:
    client.config_set("notify-keyspace-events", flags)
    finding = findings(store)["events"]
    assert finding.level is Level.WARNING
    mend(client, finding)
    assert findings(store)["events"].level is Level.OK


@pytest.mark.parametrize("flags", ["EA", "KEA", "AKE", "Egx"])
def test_sufficient_notifications_are_enough(store: Store, client: redis.Redis, flags: str) -> None:
    client.config_set("notify-keyspace-events", flags)
    assert findings(store)["events"].level is Level.OK


async def test_without_notifications_it_says_how_and_carries_on_by_the_clock(
    settings: Settings, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    client.config_set("notify-keyspace-events", "")
    witness = Witness()

    async def note() -> None: ...

    async with AsyncBridge(settings.url) as bridge, listening(settings, witness, note=note):
        await bridge.make_task("test.note", [], 0.05)
        assert (await witness.until_ended())[0].end is End.SUCCEEDED
    assert "CONFIG SET notify-keyspace-events Exg" in caplog.text


def test_an_evicting_policy_is_an_error_once_there_is_a_limit(
    store: Store, client: redis.Redis
) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert findings(store)["eviction"].level is Level.WARNING
    client.config_set("maxmemory", "1gb")
    finding = findings(store)["eviction"]
    assert finding.level is Level.ERROR
    mend(client, finding)
    assert findings(store)["eviction"].level is Level.OK


async def test_a_listener_refuses_a_server_that_evicts(
    settings: Settings, client: redis.Redis
) -> None:
    client.config_set("maxmemory-policy", "volatile-ttl")
    client.config_set("maxmemory", "1gb")
    with pytest.raises(ServerUnsuitable, match="will delete tasks"):
        await Listener(settings, registry_of()).run()


@EACH_OF_A_FEW
async def test_a_replica_is_refused_and_its_primary_named(binary: Path) -> None:
    with (
        EmbeddedServer(binary=binary) as primary,
        EmbeddedServer(binary=binary) as replica,
        redis.Redis(port=replica.port) as to_replica,
        redis.Redis(port=primary.port) as to_primary,
    ):
        to_replica.replicaof("127.0.0.1", str(primary.port))
        while not to_primary.info("replication")["connected_slaves"]:
            pass
        remedy = f"connect to its primary, 127.0.0.1:{primary.port}"
        with pytest.raises(ServerReadOnly, match=remedy):
            await Listener(Settings(url=replica.url), registry_of()).run()
        found = examined_at(replica.url)
        assert (found["role"].level, found["role"].remedy) == (Level.ERROR, remedy)
        # What writes cannot be looked at; all else is as it is on the primary.
        assert not {"round trip", "data"} & set(found)
        assert found["rights"].level is Level.OK
        assert examined_at(primary.url)["role"].message == "primary of 1 replica"


async def test_a_listener_says_that_a_server_is_unreachable() -> None:
    with pytest.raises(ServerUnreachable, match="no answer from the server"):
        await Listener(Settings(url="redis://127.0.0.1:1/1"), registry_of()).run()


def test_other_data_in_the_database_is_told_of(store: Store, client: redis.Redis) -> None:
    client.set("session:1", "x")
    finding = findings(store)["data"]
    assert finding.level is Level.WARNING
    assert "keys that are not expirebridge's (1 of about" in finding.message


def test_memory_that_runs_out_is_told_of_before_and_after(
    store: Store, client: redis.Redis
) -> None:
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", int(used * 1.05))
    assert examined(store)["memory"].level is Level.WARNING
    client.config_set("maxmemory", 1)
    found = examined(store)
    assert found["memory"].level is Level.ERROR
    assert "out of memory" in found["round trip"].message
    mend(client, found["memory"])
    found = examined(store)
    assert (found["memory"].level, found["round trip"].level) == (Level.OK, Level.OK)


def test_a_server_that_forgets_is_told_of(
    store: Store, client: redis.Redis, configure: Configure
) -> None:
    configure("appendonly", "no")
    finding = examined(store)["persistence"]
    assert (finding.level, "all tasks are lost" in finding.message) == (Level.WARNING, True)
    configure("save", "3600 1")
    finding = examined(store)["persistence"]
    assert "since its last snapshot" in finding.message
    mend(client, finding)
    assert examined(store)["persistence"].level is Level.OK
    configure("appendfsync", "no")
    finding = examined(store)["persistence"]
    assert "appendfsync is no" in finding.message
    mend(client, finding)
    assert examined(store)["persistence"].level is Level.OK


@EACH_OF_A_FEW
def test_a_disk_that_fails_is_an_error(binary: Path) -> None:
    with EmbeddedServer(binary=binary) as server, redis.Redis(port=server.port) as client:
        shutil.rmtree(server.directory)
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            pass
        before = examined_at(server.url)["persistence"]
        # With snapshots, it refuses to write, and so all that the doctor would write.
        client.config_set("save", "3600 1")
        found = examined_at(server.url)
        client.config_set("save", "")  # it would not stop without a last one
        headers = int(client.info("server")["redis_version"].partition(".")[0]) >= 7
    assert before.level is found["persistence"].level is Level.ERROR
    assert "rdb_last_bgsave_status" in before.message
    # A server that knows headers refuses a script that may write before it reads.
    for refused in ("data", "round trip") if headers else ("round trip",):
        assert found[refused].level is Level.ERROR
        assert "MISCONF" in found[refused].message
    assert found["rights"].level is Level.OK


@pytest.mark.parametrize("limits", ["pubsub 8mb 0 0", "pubsub 32mb 1mb 60"])
def test_small_buffers_for_subscribers_are_told_of(
    store: Store, client: redis.Redis, configure: Configure, limits: str
) -> None:
    configure("client-output-buffer-limit", limits)
    finding = examined(store)["buffers"]
    assert finding.level is Level.WARNING
    mend(client, finding)
    assert examined(store)["buffers"].level is Level.OK


@pytest.mark.parametrize("limits", ["pubsub 32mb 8mb 60", "pubsub 0 0 0", "pubsub 32mb 1mb 0"])
def test_sufficient_buffers_are_enough(store: Store, configure: Configure, limits: str) -> None:
    configure("client-output-buffer-limit", limits)
    assert examined(store)["buffers"].level is Level.OK


@pytest.mark.parametrize(("moved", "word"), [(-90, "ahead of"), (90, "behind")])
async def test_a_clock_that_differs_is_told_of(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, moved: float, word: str
) -> None:
    async with listening(settings):
        await asyncio.to_thread(until_subscribed, settings.url)
        true_time = time.time
        monkeypatch.setattr(time, "time", lambda: true_time() + moved)
        found = examined(store)
        monkeypatch.undo()
    # Nothing else is judged by this machine's clock.
    [finding] = [one for one in found.values() if one.level is not Level.OK]
    assert (finding.check, finding.level) == ("clock", Level.WARNING)
    assert f"the server's is 1m 30s {word} this machine's" in finding.message


# The login


@pytest.mark.parametrize("lacking", [["+subscribe", "+zadd"], ["+hmget"], ["+publish"]])
def test_a_login_without_a_right_is_an_error(
    server: AnyServer, client: redis.Redis, lacking: list[str]
) -> None:
    if client.info("server")["redis_version"].startswith("6."):
        pytest.skip("Redis 6.2 does not report rights")
    refused = [rule.replace("+", "-") for rule in lacking]
    with login(server, ["~*", "&*", "+@all", *refused]) as url:
        finding = examined_at(url)["rights"]
        assert finding.level is Level.ERROR
        assert finding.remedy == f"ACL SETUSER {NAME} {' '.join(lacking)}"
        mend(client, finding)
        assert examined_at(url)["rights"].level is Level.OK


@pytest.mark.parametrize("role", LoginRole)
def test_what_the_login_may_not_look_at_is_told_of(server: AnyServer, role: LoginRole) -> None:
    """A login of few rights is no error of the server."""
    with login(server, ["~*", "&*", "+@all", "-info", "-config", "-zrangebyscore"]) as url:
        found = examined_at(url, role)
    for part in ("server", "work", "functions"):
        assert found[part].level is Level.WARNING
        assert found[part].message == "not looked at: the login may not"
    assert found["clock"].level is Level.OK
    assert ("round trip" in found) is (role is LoginRole.LISTENER)


async def test_settings_that_the_server_keeps_to_itself_are_no_fault(
    server: AnyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Hosted servers refuse CONFIG."""
    caplog.set_level(logging.WARNING)
    with login(server, ["~*", "&*", "+@all", "-config"]) as url:
        async with listening(Settings(url=url), act=lambda: None):
            await asyncio.to_thread(until_subscribed, url)
            found = await asyncio.to_thread(examined_at, url)
    assert caplog.records == []
    limits = {name for name, one in found.items() if one.level is Level.LIMIT}
    assert limits == {"events", "buffers", "persistence"}
    assert {one.level for one in found.values()} == {Level.OK, Level.LIMIT}


HOSTED = [
    "acl", "bgrewriteaof", "bgsave", "client", "command", "config", "debug", "migrate", "replicaof",
    "role", "save", "shutdown", "slaveof", "sync",
]  # fmt: skip
"""What no hosted service leaves out of its list of restricted commands, and more."""


@EACH_OF_A_FEW
async def test_a_hosted_server_runs_tasks_and_the_doctor_names_its_limits(
    binary: Path, tmp_path: Path
) -> None:
    witness = Witness()
    hosted = tmp_path / "hosted.conf"
    hosted.write_text("".join(f'rename-command {name} ""\n' for name in HOSTED))
    with EmbeddedServer(binary=binary, options={"include": str(hosted)}) as server:
        async with (
            listening(Settings(url=server.url), witness, act=lambda: None),
            AsyncBridge(server.url) as bridge,
        ):
            await asyncio.to_thread(until_subscribed, server.url)
            await bridge.make_task("test.act", [], 0.05)
            await witness.until_ended(1, End.SUCCEEDED)
            report = await asyncio.to_thread(invoke, "doctor", url=server.url)
    limits = re.findall(r"^limit +(\w+)", report, re.MULTILINE)
    assert limits == ["persistence", "events", "buffers"]
    assert "0 errors, 0 warnings, 12 ok, 3 limits" in report
    assert "where its provider does" in report


def test_what_is_lost_is_not_known_where_settings_are_kept_back(
    server: AnyServer, configure: Configure
) -> None:
    configure("appendonly", "no")
    with login(server, ["~*", "&*", "+@all", "-config"]) as url:
        finding = examined_at(url)["persistence"]
    assert finding.level is Level.WARNING
    assert "since its last snapshot, if it takes any" in finding.message


# The work


def test_without_a_listener_it_depends_on_whether_something_is_due(
    store: Store, bridge: Bridge
) -> None:
    assert examined(store)["listeners"].level is Level.WARNING
    bridge.make_task("mail.send", [1], 0)
    finding = examined(store)["listeners"]
    assert finding.level is Level.ERROR
    assert "no listener beats, and 1 task is overdue" in finding.message
    assert finding.remedy.startswith("expirebridge listen")


def test_a_listener_of_another_machine_is_none_of_this_one(store: Store) -> None:
    store.run(claiming.heartbeat("elsewhere:1:x", 10, [], code="c0de"))
    database, settings = store.database, Settings()
    anywhere = store.run(check_health(database, settings))[0]
    here = store.run(check_health(database, settings, here=True))[0]
    assert (anywhere.level, here.level) == (Level.OK, Level.WARNING)
    assert here.message.endswith("; 1 elsewhere")


def test_without_a_limit_nothing_is_asked_about_tasks(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    store.run(claiming.heartbeat("me:1:x", 10, [], code="c0de"))
    bridge.make_task("mail.send", [1], 3600, id="a")
    age(client, "pending", "a", 40)
    found = store.run(check_health(store.database, Settings(), max_overdue=None))
    assert [one.check for one in found] == ["listeners", "subscriptions"]


def test_a_listener_that_was_silent_for_a_lease_does_not_beat(
    store: Store, client: redis.Redis
) -> None:
    store.run(claiming.heartbeat("me:1:x", 10, [], code="c0de"))
    client.zincrby("expirebridge:listeners", -11_000, "me:1:x")
    assert store.run(check_health(store.database, Settings()))[0].level is Level.WARNING
    assert store.run(check_health(store.database, Settings(lease=60)))[0].level is Level.OK


def test_a_task_that_waits_for_too_long_is_told_of(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    store.run(claiming.heartbeat("me:1:x", 10, [], code="c0de"))
    bridge.make_task("mail.send", [1], 3600, id="a")
    assert examined(store)["overdue"].message == "no task is overdue"
    age(client, "pending", "a", 20)
    assert examined(store)["overdue"].level is Level.OK
    found = store.run(check_health(store.database, Settings(), max_overdue=10))
    assert [one.level for one in found if one.check == "overdue"] == [Level.WARNING]
    age(client, "pending", "a", 40)
    finding = examined(store)["overdue"]
    assert finding.level is Level.WARNING
    assert "1 task is overdue, the first for 40s" in finding.message


@pytest.mark.parametrize("score", ["-inf", "-1e300"])
def test_a_score_before_all_times_is_told_of(store: Store, client: redis.Redis, score: str) -> None:
    client.execute_command("ZADD", "expirebridge:pending", score, "bad")
    assert examined(store)["overdue"].level is Level.WARNING


async def test_a_listener_that_cannot_subscribe_is_told_of(
    server: AnyServer, store: Store, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """It beats, and runs what is due: nothing else would show it."""
    with login(server, ["~*", "&*", "+@all"]) as url:
        async with listening(Settings(url=url)):
            await asyncio.to_thread(until_subscribed, url)
            before = await asyncio.to_thread(examined, store)
            client.execute_command("ACL", "SETUSER", NAME, "-subscribe")
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await logged("the subscription failed: ", caplog)
            await logged("no permissions", caplog)
            found = await asyncio.to_thread(examined, store)
    assert before["subscriptions"].level is Level.OK
    assert found["listeners"].level is Level.OK
    assert found["subscriptions"].level is Level.WARNING
    missing = "(0 of 1 to expirebridge:doorbell:1, 0 of 1 to __keyevent@1__:expired)"
    assert missing in found["subscriptions"].message


async def test_one_listener_of_two_that_is_not_subscribed_is_told_of(
    settings: Settings, store: Store
) -> None:
    async with listening(settings):
        await asyncio.to_thread(until_subscribed, settings.url)
        store.run(claiming.heartbeat("elsewhere:1:x", 10, [], code="c0de"))
        finding = examined(store)["subscriptions"]
        here = store.run(check_health(store.database, settings, here=True))
    assert finding.level is Level.WARNING
    assert "(1 of 2 to expirebridge:doorbell:1)" in finding.message
    # The one of this machine is subscribed.
    assert [one.level for one in here] == [Level.OK] * 3


async def test_this_machine_s_listener_that_is_not_subscribed_is_told_of(store: Store) -> None:
    store.run(claiming.heartbeat(f"{socket.gethostname()}:1:x", 10, [], code="c0de"))
    for here in (True, False):
        found = store.run(check_health(store.database, Settings(), here=here))
        assert [one.level for one in found] == [Level.OK, Level.OK, Level.WARNING]


async def test_listeners_that_go_by_the_clock_hear_no_key_events(url: str, store: Store) -> None:
    settings = Settings(url=url, doorbell=Doorbells.CLOCK)
    async with listening(settings):
        by_clock = store.run(check_health(store.database, settings))
        by_both = store.run(check_health(store.database, Settings()))
    assert [one.level for one in by_clock] == [Level.OK] * 3
    assert [one.message for one in by_both if one.level is Level.WARNING] == [
        "too few listeners are subscribed (0 of 1 to __keyevent@1__:expired): the others have "
        "only their clock, and miss the changes of other clients"
    ]


async def test_functions_that_no_listener_knows_are_told_of(
    settings: Settings,
    store: Store,
    async_bridge: AsyncBridge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    witness = Witness()
    async with listening(settings, witness):
        await async_bridge.make_tasks(
            [{"func": func, "delay": 0} for func in ("mail.sned", "mail.sned", "a.b")]
        )
        await witness.until_ended(3)
        await async_bridge.make_task("not.tried", [], 5)
        finding = (await asyncio.to_thread(examined, store))["functions"]
    assert finding.level is Level.WARNING
    assert finding.message.startswith("tasks wait for functions")
    assert "do not know: mail.sned (2), a.b (1); " in finding.message
    assert "expirebridge list --func mail.sned" in finding.remedy
    # It says so if it did not look at all of them.
    monkeypatch.setattr("expirebridge.fleet.checks._SAMPLE", 2)
    assert examined(store)["functions"].message.startswith("tasks among the 2 that are due first")


def test_a_database_of_a_newer_version_is_an_error(store: Store, client: redis.Redis) -> None:
    client.hset("expirebridge:meta", "format", 99)
    found = examined(store)
    assert found["format"].level is Level.ERROR
    assert "has format 99" in found["format"].message


def test_what_the_scripts_cannot_read_hides_nothing_else(store: Store, client: redis.Redis) -> None:
    client.set("expirebridge:pending", "x")
    found = examined(store)
    assert found["data"].level is Level.ERROR
    assert "overwrote expirebridge:pending:" in found["data"].message
    assert found["data"].remedy.startswith("DEL expirebridge:pending;")
    assert found["work"].level is found["functions"].level is Level.ERROR
    assert found["version"].level is found["round trip"].level is Level.OK


# The round trip


async def test_the_round_trip_leaves_nothing_and_is_no_task(
    settings: Settings, store: Store, client: redis.Redis, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    async with listening(settings, witness):
        before = set(client.keys())
        for _ in range(3):
            found = await asyncio.to_thread(examined, store)
            assert found["round trip"].level is Level.OK
        assert set(client.keys()) == before
        # What the listener heard of it has been dealt with when it has run what came later.
        await async_bridge.make_task("test.unknown", [], 0)
        await witness.until_ended()
    assert len(witness.ended()) == 1
    counts = await async_bridge.count()
    assert (counts.pending, counts.failed, counts.succeeded, counts.cancelled) == (1, 0, 0, 0)


def test_events_that_do_not_come_are_told_of(store: Store, client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "")
    finding = examined(store)["round trip"]
    assert finding.level is Level.WARNING
    assert "no event came in 1 s" in finding.message
    assert client.keys("*doctor*") == []
    mend(client, finding)
    assert examined(store)["round trip"].level is Level.OK
