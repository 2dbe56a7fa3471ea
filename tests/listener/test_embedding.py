"""A listener inside a program: it starts and stops with a block, and leaves the program alone."""

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import redis
import uvloop

import expirebridge
from expirebridge import (
    AsyncBridge,
    Bridge,
    HandlersError,
    Listener,
    ListenerStuck,
    ServerUnreachable,
    State,
    log_event,
)
from expirebridge.embedded.server import EmbeddedServer, free_port
from expirebridge.handlers import Registry
from expirebridge.hooks import End, Started
from expirebridge.settings import Settings
from tests.kit.logs import SECRET, Log
from tests.kit.patience import PATIENCE
from tests.kit.proxy import Proxy
from tests.kit.servers import hanging
from tests.kit.steps import found
from tests.kit.witness import Witness, registry_of

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def embedded(
    url: str, witness: Witness, /, *, grace: float = 5, **functions: Callable[..., Any]
) -> Listener:
    return Listener(Settings(url=url, grace=grace), registry_of(**functions), [witness])


async def note() -> None: ...


async def test_it_listens_while_the_block_runs_and_leaves_in_order(
    url: str, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    go_on = asyncio.Event()

    async def finish() -> None:
        await go_on.wait()

    async with embedded(url, witness, finish=finish) as listener:
        assert listener.ready.is_set()
        assert (await async_bridge.count()).listeners == 1
        task = await async_bridge.make_task("test.finish", [], 0)
        await witness.until(lambda: witness.seen(Started))
        asyncio.get_running_loop().call_later(0.1, go_on.set)
    assert (await found(async_bridge, task)).state is State.SUCCEEDED
    assert (await async_bridge.count()).listeners == 0
    await listener.wait()


async def test_the_block_does_not_begin_if_the_server_cannot_be_used() -> None:
    listener = embedded(f"redis://127.0.0.1:{free_port()}/1", Witness(), note=note)
    with pytest.raises(ServerUnreachable):
        async with listener:
            pytest.fail("the block began")


@pytest.mark.parametrize("script", ["heartbeat", "declare", "declare_limits"])
async def test_a_connection_that_breaks_at_the_first_heartbeat_does_not_end_it(
    server: EmbeddedServer, async_bridge: AsyncBridge, script: str
) -> None:
    """From then on the server lists it, so whoever sees it there counts on it."""
    witness = Witness()
    with Proxy(server.port) as proxy:
        proxy.cut_reply_of(script)
        async with embedded(proxy.url, witness, note=note):
            await async_bridge.make_task("test.note", [], 0)
            await witness.until_ended()
    assert proxy.cuts[script] == 1


async def test_it_waits_at_the_start_for_a_server_that_is_slow_to_answer(
    url: str, client: redis.Redis
) -> None:
    slow = Settings(url=url, lease=1.0)
    client.execute_command("CLIENT", "PAUSE", 1_500, "ALL")  # an answer is awaited for 1 s
    async with Listener(slow, registry_of(note=note)) as listener:
        assert listener.ready.is_set()


async def test_the_block_does_not_begin_if_a_lifespan_fails(
    url: str, async_bridge: AsyncBridge
) -> None:
    async def broken() -> AsyncGenerator[None, None]:
        open_database()
        yield

    def open_database() -> None:
        raise OSError("no database")

    registry = Registry({}, lifespans=[broken])
    with pytest.raises(HandlersError, match="no database"):
        async with Listener(Settings(url=url), registry):
            pytest.fail("the block began")
    assert (await async_bridge.count()).listeners == 0


async def test_a_server_that_hangs_up_later_is_not_suspected_of_tls(log: Log) -> None:
    with EmbeddedServer() as server:
        async with embedded(server.url, Witness(), note=note, grace=0):
            server.stop()
            await log.until("outage")
    told = [str(fields["error"]) for fields in log.fields("outage")]
    assert any("no answer from the server" in error for error in told)
    assert not any("TLS" in error or ".;" in error for error in told)


async def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    with EmbeddedServer() as server, hanging(server):
        listener = Listener(Settings(url=server.url, lease=1), registry_of(note=note))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), listener:  # time passes: its server hangs
                pytest.fail("the block began")
        assert len(asyncio.all_tasks()) == 1  # this one


@pytest.mark.parametrize("way", ["block", "run"])
async def test_the_program_keeps_its_signals(
    url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    interval, kept = sys.getswitchinterval(), gc.get_freeze_count()

    def interrupt(*_: object) -> None: ...

    before = signal.signal(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, heard.set)
    try:
        listener = embedded(url, Witness(), note=note)
        if way == "block":
            async with listener:
                await _hears_its_signals(heard, interrupt)
        else:
            running = asyncio.create_task(listener.run())
            await listener.ready.wait()
            await _hears_its_signals(heard, interrupt)
            assert not running.done()
            listener.stop()
            await running
        await _hears_its_signals(heard, interrupt)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGINT, before)
    assert sys.getswitchinterval() == interval
    assert gc.get_freeze_count() == kept


async def _hears_its_signals(heard: asyncio.Event, interrupt: Callable[..., None]) -> None:
    heard.clear()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(PATIENCE):
        await heard.wait()
    assert signal.getsignal(signal.SIGINT) is interrupt


async def test_one_that_takes_signals_gives_them_back(url: str) -> None:
    def mine(*_: object) -> None: ...

    before = [signal.signal(number, mine) for number in SIGNALS]
    try:
        listener = embedded(url, Witness(), note=note)
        running = asyncio.create_task(listener.run(take_signals=True))
        await listener.ready.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            await running
        assert [signal.getsignal(number) for number in SIGNALS] == [mine, mine]
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


async def test_a_signal_between_the_first_heartbeat_and_the_first_claim_stops_it_in_order(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = []
    before = signal.signal(signal.SIGTERM, lambda *_: mine.append("default"))
    greet = Listener._greet

    def greet_late(listener: Listener) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        greet(listener)

    monkeypatch.setattr(Listener, "_greet", greet_late)
    try:
        async with asyncio.timeout(PATIENCE):
            await embedded(url, Witness(), note=note).run(take_signals=True)
        assert mine == []
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_what_the_block_raises_is_raised_after_an_orderly_stop(
    url: str, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def last() -> None:
        await asyncio.sleep(0.1)

    async def fail() -> None:
        async with embedded(url, witness, last=last):
            await async_bridge.make_task("test.last", [], 0)
            await witness.until(lambda: witness.seen(Started))
            raise KeyError("the program's own")

    with pytest.raises(KeyError):
        await fail()
    assert [ended.end for ended in witness.ended()] == [End.SUCCEEDED]


@pytest.fixture
def stuck() -> Any:
    """A handler that never returns, until the test is over."""
    go_on = threading.Event()

    def stuck() -> None:
        go_on.wait(PATIENCE)

    yield stuck
    go_on.set()


async def test_the_program_learns_that_the_listener_gave_up(
    url: str, async_bridge: AsyncBridge, log: Log, stuck: Callable[[], None]
) -> None:
    await async_bridge.make_task("test.stuck", [], 0, timeout=0.05)
    went_on = asyncio.Event()

    async def program() -> None:
        async with embedded(url, Witness(), grace=0.05, stuck=stuck) as listener:
            with pytest.raises(ListenerStuck):
                await listener.wait()
            went_on.set()  # it is not cancelled

    with pytest.raises(ListenerStuck, match=r"test\.stuck did not return"):
        await program()
    assert went_on.is_set()
    assert log.events()["ended"] == 1


async def test_what_the_block_raises_goes_before_the_end_of_the_listener(
    url: str, async_bridge: AsyncBridge, log: Log, stuck: Callable[[], None]
) -> None:
    async def fail() -> None:
        async with embedded(url, Witness(), grace=0.05, stuck=stuck):
            await async_bridge.make_task("test.stuck", [], 0, timeout=0.05)
            await log.until("ended")
            raise KeyError("the program's own")

    with pytest.raises(KeyError):
        await fail()


async def test_the_group_of_a_program_ends_with_its_listener(
    url: str, async_bridge: AsyncBridge, stuck: Callable[[], None]
) -> None:
    async def program() -> None:
        async with (
            embedded(url, Witness(), grace=0.05, stuck=stuck) as listener,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(listener.wait())
            await async_bridge.make_task("test.stuck", [], 0, timeout=0.05)
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await program()
    assert isinstance(caught.value.exceptions[0], ListenerStuck)


@pytest.mark.parametrize("cancelled", ["the end of the block", "run"])
async def test_an_impatient_program_takes_the_grace_time_away(
    url: str, async_bridge: AsyncBridge, stuck: Callable[[], None], cancelled: str
) -> None:
    witness = Witness()

    async def endless() -> None:
        await asyncio.Event().wait()

    async def block() -> None:
        async with listener:
            await witness.until(lambda: len(witness.seen(Started)) == 2)
            ending.set()

    ending = asyncio.Event()
    listener = embedded(url, witness, grace=60, endless=endless, stuck=stuck)
    task = await async_bridge.make_task("test.endless", [], 0)
    left = await async_bridge.make_task("test.stuck", [], 0)
    program = asyncio.create_task(block() if cancelled != "run" else listener.run())
    await witness.until(lambda: len(witness.seen(Started)) == 2)
    if cancelled != "run":
        await ending.wait()
        await asyncio.sleep(0)
    program.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await program
    read = await found(async_bridge, task)
    assert (read.state, read.attempt) == (State.PENDING, 0)  # given back
    assert (await found(async_bridge, left)).state is State.RUNNING  # until its lease lapses
    assert (await async_bridge.count()).listeners == 0


async def test_it_runs_once(url: str) -> None:
    listener = embedded(url, Witness(), note=note)
    with pytest.raises(RuntimeError, match="was not started"):
        await listener.wait()
    async with listener:
        pass
    with pytest.raises(RuntimeError, match="runs once"):
        async with listener:
            pytest.fail("it began again")


async def test_two_listeners_share_a_process(url: str, async_bridge: AsyncBridge, log: Log) -> None:
    """Each with its own handlers, room and database, or with the same."""
    other_url = url.removesuffix("/1") + "/3"
    both, other = Witness(), Witness()
    async with (
        embedded(url, both, note=note),
        embedded(url, both, note=note),
        embedded(other_url, other, note=note),
        AsyncBridge(other_url) as other_bridge,
    ):
        assert (await async_bridge.count()).listeners == 2
        await async_bridge.make_tasks([{"func": "test.note", "delay": 0}] * 20)
        await other_bridge.make_task("test.note", [], 0)
        await other.until_ended(1, End.SUCCEEDED)
        await both.until(lambda: len(both.ended()) == 20)
    assert len({ended.task.id for ended in both.ended()}) == 20
    assert len(other.ended()) == 1
    assert log.events()["stopped"] == 3


async def test_what_happens_to_tasks_is_logged_with_the_hook_for_it(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    async def fail(card: str) -> None:
        raise ValueError(card)

    witness = Witness()
    async with Listener(Settings(url=url), registry_of(fail=fail), [witness, log_event]):
        await async_bridge.make_task("test.fail", [SECRET], 0, id="a", retry=["10ms"])
        await witness.until_ended(1, End.FAILED)
    for name, attempt in (("retry", 1), ("failed", 2)):
        [told] = log.fields(name)
        assert (told["func"], told["task"], told["attempt"]) == ("test.fail", "a", attempt)
        assert told["reason"] == "ValueError"
    assert SECRET not in log.text()


def test_it_works_in_another_event_loop(url: str, bridge: Bridge) -> None:
    task = bridge.make_task("test.note", [], 0)
    witnesses: list[Witness] = []

    async def program() -> None:
        witnesses.append(Witness())
        async with embedded(url, witnesses[0], note=note):
            await witnesses[0].until_ended(1, End.SUCCEEDED)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(program())
    assert [ended.task.id for ended in witnesses[0].ended()] == [task.id]


def test_it_works_in_a_thread_of_the_program(url: str, bridge: Bridge) -> None:
    task = bridge.make_task("test.note", [], 0)
    witnesses: list[Witness] = []

    async def program() -> None:
        witnesses.append(Witness())
        async with embedded(url, witnesses[0], note=note):
            await witnesses[0].until_ended(1, End.SUCCEEDED)

    thread = threading.Thread(target=asyncio.run, args=(program(),))
    thread.start()
    thread.join(PATIENCE)
    assert [ended.task.id for ended in witnesses[0].ended()] == [task.id]


def test_a_producer_does_not_import_the_listener() -> None:
    asks = (
        "import sys, expirebridge\n"
        "assert not [name for name in sys.modules if name.startswith('expirebridge.listener')]\n"
        "print(expirebridge.Listener.__name__)"
    )
    told = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert told.stdout == "Listener\n"
    with pytest.raises(AttributeError, match="Listeners"):
        expirebridge.Listeners  # type: ignore[attr-defined]  # noqa: B018 - it is not there


def test_the_settings_of_the_environment_count_if_none_are_given(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", url)
    assert Listener(registry=registry_of(note=note)).settings.url == url


async def test_a_task_of_a_program_does_not_pass_as_a_handler(url: str, log: Log) -> None:
    """What blocks the loop of a program is not the listener's to name."""
    settings = Settings(url=url, lease=0.5)
    async with Listener(settings, registry_of(note=note)):
        threading.Event().wait(1.0)  # time passes: the loop is blocked
        await log.until("loop blocked")
    assert log.fields("loop blocked")[0]["func"] == "something that is not a handler"
    assert logging.getLogger("expirebridge").propagate
