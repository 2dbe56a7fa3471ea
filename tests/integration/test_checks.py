"""What a listener finds out about its server before it trusts it."""

import logging

import pytest
import redis

from expirebridge import ServerReadOnly, ServerUnreachable, ServerUnsuitable
from expirebridge.checks import Finding, Level, _check_version, check_server
from expirebridge.hooks import End
from expirebridge.listener.listener import Listener
from expirebridge.server import Server
from expirebridge.settings import Settings
from expirebridge.store.store import Store
from tests.servers import AnyServer
from tests.witness import Witness, listening, registry_of


def findings(store: Store) -> dict[str, Finding]:
    return {finding.check: finding for finding in store.run(check_server())}


def test_a_server_with_our_configuration_has_nothing_to_mend(store: Store) -> None:
    assert {finding.level for finding in findings(store).values()} == {Level.OK}


@pytest.mark.parametrize("flags", ["", "Ex", "Kxg"])
def test_missing_notifications_are_found_with_the_command_that_switches_them_on(
    store: Store, client: redis.Redis, flags: str
) -> None:
    client.config_set("notify-keyspace-events", flags)
    finding = findings(store)["events"]
    assert finding.level is Level.WARNING
    command = finding.remedy.split(": ", 1)[1]
    client.execute_command(*command.split())
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

    from expirebridge import AsyncBridge

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
    assert finding.remedy == "CONFIG SET maxmemory-policy noeviction"


async def test_a_listener_refuses_a_server_that_evicts(
    settings: Settings, client: redis.Redis
) -> None:
    client.config_set("maxmemory-policy", "volatile-ttl")
    client.config_set("maxmemory", "1gb")
    with pytest.raises(ServerUnsuitable, match="will delete tasks"):
        await Listener(settings, registry_of()).run()


async def test_a_listener_refuses_a_replica_and_names_its_primary(server: AnyServer) -> None:
    with Server() as replica, redis.Redis(port=replica.port) as client:
        client.replicaof("127.0.0.1", str(server.port))
        with pytest.raises(
            ServerReadOnly, match=f"connect to its primary, 127.0.0.1:{server.port}"
        ):
            await Listener(Settings(url=replica.url), registry_of()).run()


async def test_a_listener_says_that_a_server_is_unreachable() -> None:
    with pytest.raises(ServerUnreachable, match="no answer from the server"):
        await Listener(Settings(url="redis://127.0.0.1:1/1"), registry_of()).run()


def test_other_data_in_the_database_is_told_of(store: Store, client: redis.Redis) -> None:
    client.set("session:1", "x")
    assert "keys that are not expirebridge's" in findings(store)["data"].message


def test_an_old_server_is_refused() -> None:
    assert _check_version({"redis_version": "5.0.14"}).level is Level.ERROR
    assert _check_version({"redis_version": "6.2.14"}).level is Level.OK


async def test_settings_that_the_server_keeps_to_itself_are_no_fault(
    server: AnyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Hosted servers refuse CONFIG."""
    caplog.set_level(logging.WARNING)
    with redis.Redis(port=server.port) as admin:
        admin.execute_command(
            "ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-config"
        )
        try:
            url = f"redis://limited:secret@127.0.0.1:{server.port}/1"
            async with listening(Settings(url=url), act=lambda: None):
                pass
        finally:
            admin.execute_command("ACL", "DELUSER", "limited")
    assert caplog.records == []
