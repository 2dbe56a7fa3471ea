"""Arguments, results and errors that the server cannot read."""

import asyncio
import gc
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from expirebridge import (
    AsyncBridge,
    Bridge,
    Call,
    Change,
    Discard,
    InvalidSetting,
    InvalidTask,
    Limit,
    Retry,
    State,
    TaskDiffers,
    handler,
    make_task,
)
from expirebridge.checks.finding import Level, ok
from expirebridge.handlers import Registry
from expirebridge.hooks import End
from expirebridge.observe.logs import log_event
from expirebridge.sealing import calls as resealing
from expirebridge.sealing import command as cli_reseal
from expirebridge.sealing.calls import Replacement
from expirebridge.sealing.checks import check_keys
from expirebridge.sealing.resealing import Resealed, reseal
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls.call import Steps
from expirebridge.task.key_ring import LONGEST_LINE, Content, KeyRing
from expirebridge.testing import Clock
from tests.kit.colours import asking_one
from tests.kit.invoked import app, invoke, invoke_json
from tests.kit.modules import forgotten, put
from tests.kit.patience import PATIENCE
from tests.kit.private_keys import K1, K2, key
from tests.kit.steps import found
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

HIDDEN = token_hex(8)
"""Of this run alone: the server's files may have what earlier tests wrote."""
SECRET = f"{HIDDEN}-name-of-a-customer"
RESULT, ERROR = f"{HIDDEN}-result", f"{HIDDEN}-in-an-error"


async def send(to: str, *, copy: str = "") -> str:
    return f"{RESULT} {to} {copy}"


async def fail(to: str) -> None:
    raise ValueError(f"{ERROR} {to}")


async def discard(to: str) -> None:
    raise Discard(f"{ERROR} {to}")


async def again(to: str) -> None:
    raise Retry("1h", f"{ERROR} {to}")


def raw_args(client: redis.Redis, id: str) -> bytes:
    stored: Any = client.hget(f"expirebridge:task:{id}", "args")
    return bytes(stored or b"")


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
@pytest.mark.parametrize("partitions", [1, 4])
async def test_who_has_the_key_sees_all_and_the_server_nothing(
    settings: Settings,
    bridge: Bridge,
    client: redis.Redis,
    colour: type[Bridge | AsyncBridge],
    partitions: int,
) -> None:
    witness = Witness()
    bridge.create_partitions(partitions)
    async with (
        asking_one(colour(settings.url, keys=K1)) as ask,
        listening(replace(settings, keys=K1), witness, send=send, fail=fail),
    ):
        one = await ask("make_task", "test.send", [SECRET], 0, kwargs={"copy": "x"})
        assert (one.args, one.kwargs) == ([SECRET], {"copy": "x"})
        assert one.key.endswith(b":?test.send?@")
        many = [{"func": f"test.{name}", "args": [SECRET], "delay": 0} for name in ("send", "fail")]
        sent, failed = await ask("make_tasks", many)
        await witness.until_ended(3)
        read = await ask("get", one.id)
        assert (read.args, read.result) == ([SECRET], f"{RESULT} {SECRET} x")
        assert (await ask("get", sent.id)).result == f"{RESULT} {SECRET} "
        read = await ask("get", failed.id)
        assert read.error.startswith("Traceback (most recent call last):\n")
        assert read.error.endswith(f"\nValueError: {ERROR} {SECRET}")
        assert read.history[-1].error == f"ValueError: {ERROR} {SECRET}"
        [listed] = (await ask("list", func="test.fail")).tasks
        assert listed == read
    # Another bridge has no key.
    hidden = bridge.get(failed.id)
    assert hidden is not None
    note = "(sealed with key k1)"
    assert (hidden.args, hidden.error, hidden.history[-1].error) == ([note], note, note)
    hidden = bridge.get(one.id)
    assert hidden is not None
    assert (hidden.args, hidden.result) == ([note], note)


@contextmanager
def monitored(client: redis.Redis) -> Iterator[Callable[[], str]]:
    """All commands that the server gets during a block; and all that is published."""
    lines: list[str] = []
    ready = threading.Event()

    def listen() -> None:
        with client.monitor() as monitor:
            ready.set()
            for command in monitor.listen():
                lines.append(str(command))
                if "END-OF-TEST" in command["command"]:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(PATIENCE)

    def text() -> str:
        client.echo("END-OF-TEST")
        thread.join(PATIENCE)
        assert not thread.is_alive()
        return "\n".join(lines)

    yield text
    assert not thread.is_alive()


def contents_of(folder: Path) -> str:
    """All files below a folder: the append-only file, and the snapshot."""
    return str([path.read_bytes() for path in folder.rglob("*") if path.is_file()])


def published(pubsub: Any) -> str:
    """All that was published since the last call."""
    redis.Redis(connection_pool=pubsub.connection_pool).publish("test", "END-OF-TEST")
    lines = list[str]()
    while not lines or "END-OF-TEST" not in lines[-1]:
        lines.append(str(pubsub.get_message(timeout=PATIENCE)))
    return "\n".join(lines)


async def test_no_secret_is_anywhere(
    settings: Settings, url: str, client: redis.Redis, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    witness = Witness()
    handlers: dict[str, Any] = {
        "send": send, "fail": fail, "discard": discard, "again": again,
    }  # fmt: skip
    wanted = {"notify-keyspace-events": "KEA", "rdbcompression": "no", "appendonly": "yes"}
    former = {name: client.config_get(name)[name] for name in wanted}
    for name, value in wanted.items():
        client.config_set(name, value)
    pubsub = client.pubsub()
    pubsub.psubscribe("*")
    texts: dict[str, str] = {}

    def watch(event: Any) -> None:
        log_event(event)
        witness(event)

    with monitored(client) as commands:
        bridge = AsyncBridge(url, keys=K1)
        async with (
            asking_one(bridge),
            listening(replace(settings, keys=K1), watch, **handlers),
        ):
            for name in handlers:
                await bridge.make_task(f"test.{name}", [SECRET], 0.05, kwargs={})
            await bridge.make_task("test.send", [SECRET * 50], "1h", id="large")
            await bridge.watch("watched", "test.send", [SECRET], ttl="1h")
            await bridge.schedule("nightly", "test.send", [SECRET], every="1h")
            await bridge.run_series("nightly")
            await bridge.make_task("test.send", [SECRET], "1h", id="large", if_exists="replace")
            await witness.until_ended(1, End.FAILED)
            await witness.until_ended(2, End.RETRY)
            await witness.until_ended(2, End.SUCCEEDED)
            listing = await bridge.list()
            assert all(HIDDEN in str(task.args) for task in listing.tasks)
            ticks = [task for task in listing.tasks if task.id.startswith("nightly@")]
            assert {task.args[0] for task in ticks} == {SECRET}
            series = await bridge.get_series("nightly")
            assert series is not None
            assert series.args == [SECRET]
        texts["commands"] = commands()
    texts["events"] = published(pubsub)
    pubsub.close()
    names = list(client.scan_iter())
    texts["dumps"] = str([client.dump(name) for name in names])  # may be compressed
    texts["records"] = str([client.hgetall(n) for n in names if client.type(n) == b"hash"])
    texts["names"] = str(names)
    invoke("export", str(tmp_path / "lines"), url=url)
    texts["export"] = (tmp_path / "lines").read_text()
    texts["list"] = invoke("list", url=url) + invoke("show", "large", url=url)
    texts["log"] = caplog.text
    client.save()
    texts["files"] = contents_of(Path(str(client.config_get("dir")["dir"])))
    for name, before in former.items():
        client.config_set(name, str(before))
    assert "large" in texts["files"]  # the right ones were read
    assert "large" in texts["commands"]
    assert "large" in texts["events"]
    assert "fail" in texts["log"]
    for place, text in texts.items():
        assert text.count(HIDDEN) == 0, place


async def test_a_task_waits_for_a_listener_with_its_key(settings: Settings) -> None:
    for keys, reason in [
        (None, "it is sealed with key k1, and there are no keys here"),
        (K2, "it is sealed with key k1, which is not among the keys here"),
        (
            key("k1", 7),
            "it is sealed with key k1, and the key of that name here does not open it: it is "
            "another key, or the record was changed, or copied from another task",
        ),
    ]:
        witness = Witness()
        async with (
            AsyncBridge(settings.url, keys=K1) as bridge,
            listening(replace(settings, keys=keys), witness, send=send),
        ):
            task = await bridge.make_task("test.send", [SECRET], 0)
            await witness.until_ended(1, End.RELEASED)
            read = await found(bridge, task)
            assert (read.state, read.attempt, read.error) == (
                State.PENDING, 0,
                f"its arguments: {reason} (EXPIREBRIDGE_KEYS); tried again every 15 s, for a day",
            )  # fmt: skip
        witness = Witness()
        async with (
            AsyncBridge(settings.url, keys=f"{K2} {K1}") as bridge,
            listening(replace(settings, keys=f"{K2} {K1}"), witness, send=send),
        ):
            await bridge.run_now(task.id)
            await witness.until_ended(1, End.SUCCEEDED)
            assert (await found(bridge, task)).result == f"{RESULT} {SECRET} "


def test_a_copied_record_does_not_open(url: str, client: redis.Redis) -> None:
    with Bridge(url, keys=K1) as bridge:
        bridge.make_task("test.send", [SECRET], "1h", id="a")
        bridge.make_task("test.send", ["mine"], "1h", id="b")
        sealed = client.hget("expirebridge:task:a", "args")
        assert sealed is not None
        client.hset("expirebridge:task:b", "args", sealed)
        copied = bridge.get("b")
        assert copied is not None
        assert copied.args == ["(sealed with key k1)"]


async def test_sealed_arguments_open_for_their_own_function_alone(
    settings: Settings, client: redis.Redis
) -> None:
    witness, seen = Witness(), list[str]()

    async def publish(to: str) -> None:
        seen.append(to)

    async with (
        AsyncBridge(settings.url, keys=K1) as bridge,
        listening(replace(settings, keys=K1), witness, send=send, publish=publish),
    ):
        task = await bridge.make_task("test.send", [SECRET], "1h", id="a")
        await bridge.schedule("s", "test.send", [SECRET], every="1h")
        client.hset("expirebridge:task:a", "call", b"test.publish?@")
        client.hset("expirebridge:series:s", "call", b"test.publish?@")
        assert (await found(bridge, task)).args == ["(sealed with key k1)"]
        with pytest.raises(InvalidTask, match="cannot be edited here"):
            await bridge.edit("a", ["x"])
        await bridge.run_now("a")
        await bridge.run_series("s")
        await witness.until_ended(2, End.RELEASED)
        reason = await bridge.why("a")
        assert reason is not None
        assert reason.code == "sealed"
    assert seen == []


async def test_errors_that_nobody_awaits_are_logged_without_what_they_say(
    settings: Settings, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)  # not pytest's
    witness, kept = Witness(), set[Any]()

    async def boom(to: str) -> None:
        raise ValueError(f"{ERROR} {to}")

    def shout(to: str) -> None:
        raise ValueError(f"{ERROR} {to}")

    async def stray(to: str) -> None:
        kept.add(asyncio.create_task(boom(to)))
        asyncio.get_running_loop().call_soon(shout, to)
        thread = threading.Thread(target=shout, args=[to])
        thread.start()
        await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)
        kept.clear()
        gc.collect()

    async with (
        AsyncBridge(settings.url, keys=K1) as bridge,
        listening(replace(settings, keys=K1), witness, stray=stray),
    ):
        await bridge.make_task("test.stray", [SECRET], 0)
        await witness.until_ended(1, End.SUCCEEDED)
        told = [one.message for one in caplog.records if getattr(one, "event", "") == "stray error"]
    assert len(told) == 3
    for line in told:
        assert re.search(r"ValueError at .*test_private_arguments\.py:\d+ \(sealed\)$", line)
    out, err = capfd.readouterr()
    assert HIDDEN not in caplog.text + out + err
    assert asyncio.get_running_loop().get_exception_handler() is None
    assert threading.excepthook is threading.__excepthook__


async def test_what_is_in_clear_is_shown_as_such(
    settings: Settings, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness()
    async with (
        AsyncBridge(settings.url, keys=K1) as bridge,
        listening(replace(settings, keys=K1), witness, send=send, again=again),
    ):
        sent = await bridge.make_task("test.send", [SECRET], 0, id="sent")
        await bridge.make_task("test.again", [SECRET], 0, id="again")
        await witness.until_ended(2)
        assert (await found(bridge, sent)).in_clear == ()
        client.hset("expirebridge:task:sent", "result", b'"forged"')
        client.hset("expirebridge:task:again", "error", b"forged")
        history: Any = client.hget("expirebridge:task:again", "history")
        line = history.rstrip(b"\n").rpartition(b" ")[0] + b" forged\n"
        client.hset("expirebridge:task:again", "history", history + line)
        forged = {task.id: task.in_clear for task in (await bridge.list()).tasks}
        assert forged == {"sent": ("result",), "again": ("error", "history")}
        async with AsyncBridge(settings.url) as plain:
            made = await plain.make_task("test.send", [SECRET], "1h")
            assert (await found(plain, made)).in_clear == ()
        assert (await found(bridge, made)).in_clear == ("arguments",)
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", K1)
    assert "in clear  error, history\n" in invoke("show", "again", url=settings.url)
    assert invoke_json("show", "sent", url=settings.url)["in_clear"] == ["result"]


def test_extend_compares_what_is_sealed(url: str) -> None:
    with Bridge(url, keys=K1) as bridge:
        bridge.make_task("test.send", [SECRET], "1h", id="a")
        task = bridge.make_task("test.send", [SECRET], "2h", id="a", if_exists="extend")
        assert (task.outcome, task.args) == ("extended", [SECRET])
        with pytest.raises(TaskDiffers) as differs:
            bridge.make_task("test.send", ["x"], "2h", id="a", if_exists="extend")
        assert SECRET not in str(differs.value)
        assert bridge.make_task("test.x", [], "2h", id="a", if_exists="keep").args == [SECRET]


def test_private_arguments_are_in_no_key(bridge: Bridge) -> None:
    settings: dict[str, Any] = {"delay": "1h"}
    names = [
        bridge.make_task("test.send", [SECRET], private=True, **settings).key,
        bridge.make_tasks([{"func": "a.b", "args": [SECRET], "private": True, **settings}])[0].key,
        bridge.watch("a", "test.send", [SECRET], ttl="1h", private=True).key,
    ]
    assert all(name.endswith(b"?@") for name in names)
    read = bridge.get("a")
    assert read is not None
    assert read.args == [SECRET]
    with pytest.raises(InvalidTask, match="private='yes': True or False"):
        bridge.make_task("test.send", [SECRET], private="yes", **settings)  # type: ignore[arg-type]


def test_a_private_handler_s_series_needs_keys(url: str, tmp_path: Path) -> None:
    with forgotten(tmp_path):
        put(tmp_path, "kept/__init__.py", "")
        put(
            tmp_path,
            "kept/mail.py",
            """
            from expirebridge import handler

            @handler(private=True)
            def send(to): ...
            """,
        )
        sys.path.insert(0, str(tmp_path))
        registry = Registry.load(tmp_path / "kept")
        [mail] = registry
        folder = str(tmp_path / "kept")
        with Bridge(url, tasks=folder) as bridge:
            task = bridge.make_task(mail.function, [SECRET], "1h")
            assert task.key.endswith(b":?mail.send?@")
            called: Any = Call(mail.function, SECRET)
            assert bridge.make_task(called, delay="1h").key.endswith(b":?mail.send?@")
            with pytest.raises(InvalidTask, match="private arguments are never in the name"):
                bridge.key_of("a", mail.function, [SECRET])
            with pytest.raises(InvalidTask, match="only if they are sealed: give keys"):
                bridge.schedule("s", mail.function, [SECRET], every="1h")
        with Bridge(url, tasks=folder, keys=K1) as bridge:
            assert bridge.schedule("s", mail.function, [SECRET], every="1h").args == [SECRET]


def test_a_name_that_would_show_them_is_refused(url: str) -> None:
    with (
        Bridge(url, keys=K1) as bridge,
        pytest.raises(InvalidTask, match=r"test\.send: private arguments are never in the name"),
    ):
        bridge.key_of("a", "test.send", [SECRET])


def test_commands_show_them_with_a_key_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bridge(url, keys=K1) as bridge:
        bridge.make_task("test.send", [SECRET], "1h", id="a")
    assert '("(sealed with key k1)")' in invoke("show", "a", url=url)
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", K1)
    assert f'("{SECRET}")' in invoke("show", "a", url=url)
    assert invoke_json("list", url=url)["tasks"][0]["args"] == [SECRET]


def test_an_export_keeps_the_seal(url: str, tmp_path: Path, client: redis.Redis) -> None:
    with Bridge(url, keys=K1) as bridge:
        bridge.make_task("test.send", [SECRET], "1h", id="a")
        bridge.schedule("s", "test.send", [SECRET], every="1h")
        invoke("export", str(tmp_path / "lines"), url=url)
        assert SECRET not in (tmp_path / "lines").read_text()
        client.flushdb()
        invoke("import", str(tmp_path / "lines"), url=url)
        task, series = bridge.get("a"), bridge.get_series("s")
        assert task is not None
        assert series is not None
        assert task.args == series.args == [SECRET]


async def test_large_arguments_are_sealed_once_they_are_encoded(
    settings: Settings, client: redis.Redis
) -> None:
    import zlib

    class Compression:
        def encode(self, args: bytes, id: str) -> bytes:  # noqa: ARG002
            return zlib.compress(args)

        def decode(self, encoded: bytes, id: str) -> bytes:  # noqa: ARG002
            return zlib.decompress(encoded)

    witness, codec = Witness(), Compression()
    async with (
        AsyncBridge(settings.url, codec=codec, keys=K1) as bridge,
        listening(replace(settings, codec=codec, keys=K1), witness, send=send),
    ):
        task = await bridge.make_task("test.send", [SECRET], 0, kwargs={"copy": "x" * 70_000})
        assert str(task.args[0]).startswith("(encoded, ")
        stored = await asyncio.to_thread(client.hget, f"expirebridge:task:{task.id}", "args")
        assert str(stored).startswith("b'sealed:k1:")
        await witness.until_ended(1, End.SUCCEEDED)


@handler(limit=[Limit(1, per="customer"), Limit(100, name="all", fair="plan")], private=True)
async def limited(to: str, customer: int, plan: str = "free") -> None: ...


async def test_lanes_are_chosen_by_values_in_clear(settings: Settings, client: redis.Redis) -> None:
    async with (
        AsyncBridge(settings.url, keys=K1) as bridge,
        listening(replace(settings, keys=K1), limited=limited),
    ):
        one = await bridge.make_task("test.limited", [SECRET, 17], "1h", id="a")
        await bridge.make_task("test.limited", [SECRET], "1h", id="b", kwargs={"customer": "17"})
        await bridge.make_task("test.other", [SECRET], "1h", id="c")
        raw = [raw_args(client, id) for id in "abc"]
        clear = [value.partition(b" ")[2] for value in raw]
        assert clear == [b'{"customer":"17","plan":"free"}'] * 2 + [b""]
        assert (await found(bridge, one)).args == [SECRET, 17]
        given: dict[str, Any] = {"id": "a", "if_exists": "extend"}
        # Made before its limits were known.
        client.hset("expirebridge:task:a", "args", raw[0].partition(b" ")[0])
        again = await bridge.make_task("test.limited", [SECRET, 17], "2h", **given)
        assert again.outcome == "extended"


async def test_a_task_without_such_a_value_is_not_free_of_its_limit(
    settings: Settings, client: redis.Redis
) -> None:
    witness, gate = Witness(), asyncio.Event()
    running: list[str] = []

    @handler(limit=Limit(1, per="customer"))
    async def work(customer: str) -> None:
        running.append(customer)
        await gate.wait()

    async with (
        AsyncBridge(settings.url, keys=K1) as bridge,
        listening(replace(settings, keys=K1, concurrency=10), witness, work=work),
    ):
        for number, customer in enumerate("aabb"):
            await bridge.make_task("test.work", [customer], "1h", id=f"{customer}{number}")
        tasks = (await bridge.list()).tasks
        for id in ("x", "y"):
            await bridge.make_task("test.work", [id], "1h", id=id)
            sealed = raw_args(client, id)
            client.hset(f"expirebridge:task:{id}", "args", sealed.partition(b" ")[0])
        for id in ("x", "y", *(task.id for task in tasks)):
            await bridge.run_now(id)
        await witness.until(lambda: len(running) == 3)
        lanes = {lane.name: lane.held for lane in (await bridge.limits()).lanes}
        gate.set()
        await witness.until_ended(2 + len(tasks), End.SUCCEEDED)
    assert lanes == {
        "test.work:customer=a": 1,
        "test.work:customer=b": 1,
        "test.work:customer=?": 1,
    }


async def test_all_is_sealed_with_the_new_key(
    settings: Settings, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness()
    url = settings.url

    @handler(retry=["1h"])
    async def fail(to: str) -> None:
        raise ValueError(f"{ERROR} {to} " + "x" * 300)

    async with (
        AsyncBridge(url, keys=K1) as bridge,
        listening(replace(settings, keys=K1), witness, send=send, fail=fail),
    ):
        sent = await bridge.make_task("test.send", [SECRET], 0)
        failed = await bridge.make_task("test.fail", [SECRET], 0)
        await bridge.schedule("nightly", "test.send", [SECRET], every="1d")
        await witness.until_ended(2)
        await bridge.run_now(failed.id)
        await witness.until_ended(3)
        await bridge.make_tasks(
            [{"func": "test.send", "args": [n], "delay": "1h"} for n in range(250)]
        )
        await bridge.make_task("test.send", [SECRET * 1500], "1h", id="a")
        client.hset("expirebridge:task:a", "args", raw_args(client, "a") + b' {"to":"x"}')
        before = (await bridge.list(limit=1000)).tasks
    with Bridge(url) as plain:
        plain.make_task("test.send", ["sealed:k1:AAAA"], "1h", id="plain")
        plain.make_task("test.send", ["sealed:k1:AAAA" * 50], "1h", id="plain-2")
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", f"{K2} {K1}")
    assert invoke_json("reseal", url=url) == {
        "key": "k2", "examined": 257, "resealed": 250 + 8, "not_opened": {}, "complete": True,
    }  # fmt: skip
    records = [client.hgetall(name) for name in client.scan_iter("expirebridge:task:*")]
    records.append(client.hgetall("expirebridge:series:nightly"))
    assert str(records).count("sealed:k1") == str(records).count("sealed:k1:AAAA") == 51
    assert "sealed:k2" in str(records)
    assert raw_args(client, "a").endswith(b' {"to":"x"}')
    async with AsyncBridge(url, keys=K2) as bridge:
        after = (await bridge.list(limit=1000)).tasks
        assert {task.id: task for task in before} == {
            task.id: task for task in after if not task.id.startswith("plain")
        }
        assert (await found(bridge, sent)).result == f"{RESULT} {SECRET} "
        errors = [entry.error for entry in (await found(bridge, failed)).history if entry.error]
        assert [error.startswith(f"ValueError: {ERROR}") for error in errors] == [True, True]
        series = await bridge.get_series("nightly")
        assert series is not None
        assert series.args == [SECRET]
    assert "sealed with key k2 0" in invoke("reseal", url=url)


async def test_nothing_is_sealed_with_a_key_that_a_listener_lacks(
    settings: Settings, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncBridge(settings.url, keys=K1) as bridge:
        await bridge.make_task("test.send", [SECRET], "1h", id="a")
    before = raw_args(client, "a")
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", f"{K2} {K1}")
    witness = Witness()
    for keys in (K1, f"{K1} {key('k2', 9)}"):
        async with listening(replace(settings, keys=keys), witness, send=send) as listener:
            done = await asyncio.to_thread(
                CliRunner().invoke, app, ["reseal"], env={"EXPIREBRIDGE_URL": settings.url}
            )
            assert done.exit_code == 3
            assert "1 running listener lacks key k2 as it is here" in done.output
            assert listener.name in done.output
        assert raw_args(client, "a") == before
    # One without keys opens nothing, before and after.
    async with (
        listening(replace(settings, keys=f"{K1} {K2}"), witness, send=send),
        listening(settings, witness, send=send),
    ):
        assert "sealed with key k2 1" in await asyncio.to_thread(invoke, "reseal", url=settings.url)
    assert raw_args(client, "a") != before


def test_what_is_sealed_again_and_again_is_left_after_some_walks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", f"{K2} {K1}")
    with Bridge(url, keys=K1) as bridge:

        def walk(key_ring: KeyRing) -> Steps[Resealed]:
            bridge.make_task("test.send", [SECRET], "1h")  # a program that still has the old key
            return (yield from reseal(key_ring))

        monkeypatch.setattr(cli_reseal, "reseal_once", walk)
        out = invoke("reseal", url=url, code=3)
    assert "examined 10   sealed with key k2 10" in out
    assert "once no producer does, run this again" in out


def test_what_no_key_opens_is_counted_and_left(
    url: str, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bridge(url, keys=K1) as bridge:
        bridge.make_task("test.send", [SECRET], "1h", id="a")
    before = raw_args(client, "a")
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", K2)
    out = invoke("reseal", url=url, code=3)
    assert "1 sealed with key k1, which EXPIREBRIDGE_KEYS lacks or differs" in out
    assert raw_args(client, "a") == before
    monkeypatch.delenv("EXPIREBRIDGE_KEYS")
    with pytest.raises(InvalidSetting, match="give the new key first"):
        invoke("reseal", url=url)


def sealed_history(client: redis.Redis, *lines: bytes) -> None:
    """Give the task `a` a history with these sealed errors."""
    history = b"".join(b"1795253566123 retry 1 1795253566000 1 " + one + b"\n" for one in lines)
    client.hset("expirebridge:task:a", "history", history)


def errors_of(client: redis.Redis) -> list[bytes]:
    """The errors in the history of the task `a`, as they are stored."""
    history: Any = client.hget("expirebridge:task:a", "history")
    return [line.split(b" ", 5)[5] for line in history.splitlines()]


@pytest.mark.parametrize("size", [90, 100, 110, 125, 300])
def test_a_key_with_a_long_name_leaves_a_history_s_lines_whole(
    bridge: Bridge, store: Store, client: redis.Redis, size: int
) -> None:
    long = "l" * 32
    bridge.make_task("test.send", [], "1h", id="a")
    error = f"ValueError: {'x' * size}".encode()
    last = KeyRing(K1).seal_error(error, "a").rpartition(b"\n")[2]
    sealed_history(client, last, last)
    for ring in (KeyRing(f"{key(long, 3)} {K1}"), KeyRing(f"{K2} {key(long, 3)}")):
        assert store.run(reseal(ring)).resealed == 1
        lines = errors_of(client)
        assert len(lines) == 2
        for line in lines:
            assert line.startswith(f"sealed:{ring.first}:".encode())
            assert len(line) <= LONGEST_LINE
            assert error.startswith(ring.open(line, "a", Content.ERROR))


def test_what_opens_is_sealed_again_beside_what_does_not(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    bridge.make_task("test.send", [], "1h", id="a")
    lost = KeyRing(key("zlost", 9)).seal_error(b"lost", "a")
    sealed_history(client, KeyRing(K1).seal_error(b"one", "a"), lost, lost)
    ring = KeyRing(f"{K2} {K1}")
    for resealed in (1, 0):
        done = store.run(reseal(ring))
        assert (done.resealed, done.not_opened) == (resealed, {"zlost": 1})
    assert errors_of(client) == [ring.seal_error(b"one", "a"), lost, lost]


def test_what_changed_meanwhile_is_left(store: Store, bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("test.send", ["x" * 600], "1h", id="a")
    old = raw_args(client, "a")
    changes = [
        Replacement("task", "a", "args", b"other", b"lost"),
        Replacement("task", "gone", "args", b"", b"lost"),
        Replacement("task", "a", "args", old, b"new"),
        Replacement("task", "a", "args", old, b"lost"),
    ]
    assert store.run(resealing.replace(changes)) == [False, False, True, False]
    assert raw_args(client, "a") == b"new"
    assert client.exists("expirebridge:task:gone") == 0


def test_the_doctor_names_keys_that_are_missing(store: Store, url: str) -> None:
    assert store.run(check_keys(None)) is None
    with Bridge(url, keys=K1) as bridge:
        bridge.make_task("test.send", [SECRET], "1h")
    fine = store.run(check_keys(KeyRing(f"{K2} {K1}")))
    assert fine == ok("keys", "1 task is sealed with known keys")
    for ring in (None, KeyRing(K2)):
        found = store.run(check_keys(ring))
        assert found is not None
        assert (found.level, found.message) == (
            Level.WARNING,
            "1 task is sealed with key k1, which EXPIREBRIDGE_KEYS lacks here: a listener without "
            "it cannot run them",
        )


def test_time_travel_opens_and_seals(
    url: str, monkeypatch: pytest.MonkeyPatch, client: redis.Redis
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", K1)
    with Clock(url, handlers={"test.send": send, "test.discard": discard}) as clock:
        make_task("test.send", [SECRET], "1h", id="a")
        make_task("test.discard", [SECRET], "2h", id="b")
        clock.assert_made("test.send", args=[SECRET])
        sent, discarded = clock.travel("1d", raising=False)
        assert (sent.task.args, sent.result) == ([SECRET], f"{RESULT} {SECRET} ")
        assert discarded.reason == f"{ERROR} {SECRET}"
        assert HIDDEN not in str([client.hgetall(f"expirebridge:task:{id}") for id in "ab"])


@pytest.mark.parametrize("former", ["", "x" * 600])
def test_an_edit_keeps_private_arguments_out_of_the_key(
    bridge: Bridge, client: redis.Redis, former: str
) -> None:
    bridge.make_task("test.send", [former], "1h", id="a", private=True)
    for args in ([SECRET], [SECRET * 100], [SECRET]):
        assert bridge.edit("a", args) is Change.EDITED_UNCHECKED
        assert SECRET not in str(client.keys("*"))
    read = bridge.get("a")
    assert read is not None
    assert (read.args, read.key) == ([SECRET], b"a:?test.send?@")


def test_an_edit_seals_too(url: str, client: redis.Redis) -> None:
    with Bridge(url, keys=K1) as bridge:
        bridge.make_task("test.send", [SECRET], "1h", id="a", tags=["x"])
        assert bridge.edit("a", kwargs={"copy": SECRET}) is Change.EDITED_UNCHECKED
        read = bridge.get("a")
        assert read is not None
        assert (read.args, read.kwargs, read.key) == (
            [SECRET], {"copy": SECRET}, b"a:?test.send?@",
        )  # fmt: skip
    for keys in (None, K2):
        with (
            Bridge(url, keys=keys) as other,
            pytest.raises(InvalidTask, match="cannot be edited here: it is sealed with key k1"),
        ):
            other.edit("a", args=["x"], kwargs={})
    with Bridge(url) as plain:
        plain.make_task("test.send", ["x" * 600], "1h", id="d")
        client.hset("expirebridge:task:d", "args", "sealed:k1:")
        with pytest.raises(InvalidTask, match="cannot be edited here: it is damaged"):
            plain.edit("d", ["y"])
        plain.make_task("test.send", [SECRET], "1h", id="b", private=True)
        plain.edit("b", ["y"])
        plain.make_task("test.send", [SECRET], "1h", id="c")
    with Bridge(url, keys=K1) as bridge:
        bridge.edit("c", ["z"])
        keys_of = [task.key for id in "bc" if (task := bridge.get(id)) is not None]
    assert keys_of == [b"b:?test.send?@", b"c:?test.send?@"]
    assert raw_args(client, "a").startswith(b"sealed:k1:")
    assert raw_args(client, "b") == b'["y"]'
    assert raw_args(client, "c").startswith(b"sealed:k1:")
