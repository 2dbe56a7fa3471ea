"""New tasks whose function no listener knows: warned of, refused, or not looked at."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, InvalidSetting, InvalidTask
from expirebridge.bridge import forget_default_bridge, prepare_task
from expirebridge.checks import Level
from expirebridge.fleet import operations
from expirebridge.fleet.checks import check_functions
from expirebridge.fleet.operations import UnknownFunctions
from expirebridge.handlers.signatures import Fingerprint
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole, grants
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet
from tests.kit.colours import asking
from tests.kit.logins import login
from tests.kit.servers import AnyServer
from tests.kit.steps import age, beat_without_code
from tests.kit.witness import registry_of

pytestmark = pytest.mark.servers("oldest")

LEASE = 10.0


def send(to: int) -> None: ...


def join(store: Store, listener: str, *names: str) -> str:
    """Beat as a listener does that knows these functions; return its code's fingerprint."""
    code = Fingerprint.of(registry_of(**dict.fromkeys(names, send)))
    store.run(claiming.heartbeat(listener, LEASE, [], code=code.digest, functions=len(code.shapes)))
    store.run(fleet.declare(code.digest, code.shapes))
    return code.digest


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the listeners know is read each time."""
    monkeypatch.setattr(operations, "BELIEVED_FOR", 0)
    monkeypatch.setattr(operations, "DOUBTED_AFTER", 0)


@contextlib.contextmanager
def refusing(url: str) -> Iterator[Bridge]:
    with Bridge(url, unknown="refuse") as bridge:
        yield bridge


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if getattr(record, "event", None) == "unknown function"
    ]


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_what_no_listener_knows_is_refused_before_it_is_made(
    colour: Any, url: str, store: Store, bridge: Bridge
) -> None:
    join(store, "host:1:aa", "send")
    strict = colour(url, unknown="refuse")
    ask = asking(strict)
    with pytest.raises(InvalidTask, match=r"func='test.sned': no listener knows it \(did you mean"):
        await ask("make_task", "test.sned", [1], 60)
    with pytest.raises(InvalidTask, match=r"func='a.b': no listener knows it"):
        await ask("make_tasks", [{"func": "test.send", "delay": 60}, {"func": "a.b", "delay": 60}])
    with pytest.raises(InvalidTask, match=r"func='a.b'"):
        await ask("watch", "w", "a.b", ttl=60)
    assert bridge.count().pending == 0
    await ask("make_task", "test.send", [1], 60)
    assert bridge.count().pending == 1
    await ask("aclose" if colour is AsyncBridge else "close")


def test_nothing_is_refused_while_a_listener_may_know_it(
    url: str, store: Store, bridge: Bridge, caplog: pytest.LogCaptureFixture, impatient: None
) -> None:
    with refusing(url) as strict:
        strict.make_task("a.b", [], 60)
        assert warnings(caplog) == []
        join(store, "host:1:aa", "send")
        beat_without_code(store, "host:2:older")
        strict.make_task("a.b", [], 60)
        assert bridge.count().pending == 2
        assert warnings(caplog) == ["a.b: 1 of 2 listeners do not know it, the others do not say"]


def test_a_declaration_that_was_overwritten_refuses_nothing(
    url: str, store: Store, bridge: Bridge, client: redis.Redis, impatient: None
) -> None:
    code = join(store, "host:1:aa", "send", "read")
    client.hdel(f"expirebridge:code:{code}", "test.read")
    with refusing(url) as strict:
        strict.make_task("test.read", [1], 60)
        client.delete(f"expirebridge:code:{code}")
        strict.make_task("test.read", [1], 60)
        client.set(f"expirebridge:code:{code}", "x")
        strict.make_task("test.read", [1], 60)
    assert bridge.count().pending == 3


def test_an_overwritten_list_of_listeners_refuses_nothing(
    url: str, bridge: Bridge, client: redis.Redis
) -> None:
    client.set("expirebridge:listeners", "x")
    with refusing(url) as strict:
        strict.make_task("a.b", [], 60)
    client.delete("expirebridge:listeners")
    assert bridge.count().pending == 1


def test_a_dead_listener_knows_nothing(
    url: str, store: Store, client: redis.Redis, impatient: None
) -> None:
    join(store, "host:1:aa", "send")
    join(store, "host:2:aa", "read")
    age(client, "listeners", "host:1:aa", LEASE + 1)
    with refusing(url) as strict:
        strict.make_task("test.read", [1], 60)
        with pytest.raises(InvalidTask, match="no listener knows it"):
            strict.make_task("test.send", [1], 60)


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_it_is_warned_of_once_in_a_process(
    colour: Any, url: str, store: Store, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    join(store, "host:1:aa", "send")
    for _ in range(2):
        producer = colour(url)
        ask = asking(producer)
        await ask("make_task", "test.sned", [1], 60)
        await ask("make_task", "test.send", [1], 60)
        await ask("make_tasks", [{"func": "a.b", "delay": 60}] * 3)
        await ask("watch", "w", "a.c", ttl=60)
        await ask("schedule", "daily", "test.sedn", [1], cron="@daily")
        await ask("schedule_many", [{"id": "more", "func": "a.d", "cron": "@daily"}])
        await ask("aclose" if colour is AsyncBridge else "close")
    assert warnings(caplog) == [
        "test.sned: no listener knows it (did you mean 'test.send'?)",
        "a.b: no listener knows it",
        "a.c: no listener knows it",
        "test.sedn: no listener knows it (did you mean 'test.send'?)",
        "a.d: no listener knows it",
    ]
    assert bridge.count().pending == 13


def test_a_function_is_asked_about_again_if_no_listener_said_what_it_knows(
    url: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with Bridge(url) as producer:
        producer.make_task("a.b", [], 60)
        join(store, "host:1:aa", "send")
        producer.make_task("a.b", [], 60)
        assert warnings(caplog) == []
        operations.asked_of[url, "expirebridge"].next_at -= operations.SILENT_FOR
        producer.make_task("a.b", [], 60)
    assert warnings(caplog) == ["a.b: no listener knows it"]


def test_an_unknown_function_is_asked_about_again_but_not_each_time(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(store, "host:1:aa", "send")
    with refusing(url) as strict:
        strict.make_task("test.send", [1], 60)
        join(store, "host:2:aa", "read")
        monkeypatch.setattr(operations, "DOUBTED_AFTER", 3600)
        with pytest.raises(InvalidTask):
            strict.make_task("test.read", [1], 60)
        monkeypatch.setattr(operations, "DOUBTED_AFTER", 0)
        strict.make_task("test.read", [1], 60)


def reads(client: redis.Redis) -> int:
    """How often what the listeners know was read: nothing else here sends such a command."""
    return int(client.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"])


def test_the_listeners_are_asked_once_in_a_while_and_never_without_the_setting(
    url: str, store: Store, client: redis.Redis
) -> None:
    join(store, "host:1:aa", "send")
    client.config_resetstat()
    with Bridge(url, unknown="off") as careless:
        careless.make_task("a.b", [], 60)
        careless.make_tasks([{"func": "a.b", "delay": 60}])
    assert reads(client) == 0
    with refusing(url) as strict:
        for n in range(10):
            strict.make_task("test.send", [n], 60)
    assert reads(client) == 1


def test_to_warn_the_listeners_are_asked_once_about_each_function(
    url: str, store: Store, client: redis.Redis
) -> None:
    join(store, "host:1:aa", "send", "read")
    client.config_resetstat()
    for _ in range(3):
        with Bridge(url) as producer:
            for func in ("test.send", "test.read", "test.send"):
                producer.make_task(func, [1], 60)
    assert reads(client) == 2


def test_a_function_is_asked_about_while_the_listeners_are_asked_about_another(
    url: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    join(store, "host:1:aa", "send")
    first, second = (UnknownFunctions("warn", Settings(url=url)) for _ in range(2))
    asking_first = store.database.commands(first.warn(["test.sned"]))
    question = next(asking_first)  # one thread waits for the answer
    store.run(second.warn(["test.sned", "a.b"]))
    assert warnings(caplog) == ["a.b: no listener knows it"]
    with contextlib.suppress(StopIteration):
        asking_first.send(store.client.execute_command(*question))
    assert warnings(caplog)[1:] == ["test.sned: no listener knows it (did you mean 'test.send'?)"]


def test_a_function_is_asked_about_again_if_nobody_waited_for_the_answer(
    url: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    join(store, "host:1:aa", "send")
    lookup = UnknownFunctions("warn", Settings(url=url))
    cancelled = lookup.warn(["a.b"])
    next(cancelled)
    cancelled.close()
    operations.asked_of[url, "expirebridge"].next_at -= operations.SILENT_FOR
    store.run(lookup.warn(["a.b"]))
    assert warnings(caplog) == ["a.b: no listener knows it"]


def test_a_producers_login_may_ask(server: AnyServer, store: Store, client: redis.Redis) -> None:
    join(store, "host:1:aa", "send")
    redis_6 = client.info("server")["redis_version"].startswith("6.")
    rights = grants(LoginRole.PRODUCER, prefix="expirebridge", database=1, redis_6=redis_6)
    with (
        login(server, [grant.rule for grant in rights]) as limited,
        refusing(limited) as strict,
        pytest.raises(InvalidTask, match="no listener knows it"),
    ):
        strict.make_task("a.b", [], 60)


def test_a_login_that_may_not_ask_may_still_make(
    server: AnyServer, store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    join(store, "host:1:aa", "send")
    rules = ["~*", "&*", "+@all", "-hgetall"]
    with login(server, rules) as limited:
        with refusing(limited) as strict:
            strict.make_task("a.b", [], 60)
        with Bridge(limited) as warning:
            warning.make_task("a.b", [], 60)
    assert bridge.count().pending == 2


def test_another_word_is_no_setting(url: str) -> None:
    with pytest.raises(InvalidSetting, match="unknown='yes': one of off, warn, refuse"):
        Bridge(url, unknown="yes")  # type: ignore[arg-type]


# The doctor, and the dashboard


def test_functions_of_tasks_to_come_are_held_against_what_the_listeners_know(
    store: Store, bridge: Bridge
) -> None:
    def finding() -> tuple[Level, str]:
        found = store.run(check_functions(LEASE))
        return found.level, found.message

    bridge.make_tasks([{"func": f, "delay": 60} for f in ("test.send", "test.sned", "a.b")])
    assert finding() == (Level.OK, "no task waits for an unknown function")
    join(store, "host:1:aa", "send")
    level, message = finding()
    assert level is Level.WARNING
    assert message.startswith("tasks will wait when they are due: ")
    assert "test.sned: no listener knows it (did you mean 'test.send'?)" in message
    assert "a.b: no listener knows it" in message
    assert "test.send:" not in message
    join(store, "host:2:aa", "sned")
    bridge.cancel_all([task.id for task in bridge.list(func="a.b").tasks])
    assert finding() == (Level.OK, "no task waits for an unknown function")
    beat_without_code(store, "host:3:older")
    level, message = finding()
    assert level is Level.OK
    assert message.endswith(
        "(1 listener does not say what it knows: of tasks to come nothing is known)"
    )


def test_what_django_makes_on_commit_is_warned_of(
    url: str, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", url)
    join(store, "one", "mail.send")
    forget_default_bridge()
    try:
        prepare_task("mail.sned", [1], 60)()
    finally:
        forget_default_bridge()
    assert len(warnings(caplog)) == 1
