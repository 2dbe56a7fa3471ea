"""Handlers with `process=True`: what becomes of their tasks, and of their processes."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from expirebridge import AsyncBridge, Listener, ListenerStuck, Settings, State
from expirebridge.handlers import Registry
from expirebridge.hooks import End, Ended, ProcessEnd, ProcessEnded, Started
from expirebridge.listener.execution.attempt import Consumer
from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.execution.process_pool import pool
from expirebridge.listener.watchdog import EmergencySettler
from expirebridge.observe.logs import TaskFields
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.policies import UNKNOWN_DELAY
from tests.kit.handler_processes import processes_below
from tests.kit.modules import forgotten, put
from tests.kit.patience import PATIENCE
from tests.kit.processes import until_ended
from tests.kit.steps import found
from tests.kit.witness import Witness, until_logged

HANDLERS = '''
import asyncio, contextvars, ctypes, functools, logging, os, signal, subprocess, sys, time
import threading
from pathlib import Path
from expirebridge import Discard, Retry, Snooze, current_task, handler, lifespan

LIFE, SEEN = [], contextvars.ContextVar("seen", default=0)

@lifespan
async def life():
    LIFE.append(asyncio.get_running_loop())
    yield
    if "LIFE" in os.environ:
        Path(os.environ["LIFE"], str(os.getpid())).write_text("closed")

@handler(process=True)
def add(a, b=1):
    before = SEEN.get()
    SEEN.set(before + 1)
    task = current_task()
    return {"sum": a + b, "pid": os.getpid(), "id": task.id, "attempt": task.attempt,
            "seen": before, "main": threading.current_thread() is threading.main_thread()}

@handler(process=True, aliases=["work.old_name"])
def renamed():
    return asyncio.run(anext_of(1))

async def anext_of(value):
    return value

@handler(process=True)
def beside():
    return asyncio.run_coroutine_threadsafe(anext_of(5), LIFE[0]).result(10)

@handler(process=True)
def fill(size):
    return "x" * size

@handler(process=True)
def raise_one(kind):
    match kind:
        case "retry": raise Retry(after="1h", reason="later")
        case "snooze": raise Snooze(after="1h", reason="too early", times=3)
        case "discard": raise Discard("never")
        case "error": raise KeyError("the shop")
        case "exit": sys.exit("enough")
        case "own": raise Own(1, 2)
        case "memory": bytearray(2**31)
        case "unprintable": raise Unprintable()

class Own(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")

class Unprintable(Exception):
    def __str__(self):
        raise ValueError

@handler(process=True)
def end(how, path=None):
    if path:
        Path(path).write_text(str(os.getpid()))
    match how:
        case "exit": os._exit(7)
        case "segfault": ctypes.string_at(0)
        case "kill": os.kill(os.getpid(), signal.SIGKILL)
        case "close": os.closerange(3, 256); time.sleep(60)

@handler(process=True)
def hold(path, seconds=60):
    """Say which processes it has: its own, and one that it started."""
    program = subprocess.Popen(["sleep", "600"])
    Path(path + ".new").write_text(f"{os.getpid()} {program.pid}")
    os.rename(path + ".new", path)
    time.sleep(seconds)
    program.kill()
    return "held"

@handler(process=True)
def hold_until(path):
    """Say which process it has, and end once there is another file."""
    Path(path + ".new").write_text(str(os.getpid()))
    os.rename(path + ".new", path)
    while not Path(path + ".end").exists():
        time.sleep(0.01)
    return "held"

@handler(process=True)
def hold_the_lock(path):
    Path(path + ".new").write_text(str(os.getpid()))
    os.rename(path + ".new", path)
    ctypes.PyDLL(None).sleep(60)  # which keeps the interpreter's lock

@handler(process=True)
def say():
    logging.getLogger("shop").warning("sold %s", 5, extra={"price": [1, {2}]})
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("shop").exception("not sold")
    logging.getLogger("shop").info("not shown")
    logging.getLogger("shop").warning("%d", "no number")

@handler(process=True)
def terminate_a_program():
    program = subprocess.Popen(["sleep", "600"])
    program.terminate()
    return program.wait(10)

@handler(process=True)
def fork():
    if os.fork() == 0:
        return "child"
    return os.waitstatus_to_exitcode(os.wait()[1])

async def wrapped():
    pass

@functools.wraps(wrapped)
def _plain():
    return wrapped()

@handler(process=True)
def gives_a_coroutine():
    return wrapped()

def _pages():
    yield 1

@handler(process=True)
def gives_a_generator():
    return _pages()

@handler(process=True)
def big(text):
    logging.getLogger("shop").warning("z" * 500_000)
    return len(text)

def in_thread():
    return os.getpid()

RELEASED = threading.Event()

async def block():
    RELEASED.wait(20)
'''


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Path]:
    put(tmp_path / "apart", "work.py", HANDLERS)
    with forgotten(tmp_path):
        yield tmp_path / "apart"


@pytest.fixture
def settings(url: str, tasks: Path) -> Settings:
    return Settings(url=url, tasks=tasks, processes=1, grace=10)


@contextlib.asynccontextmanager
async def listening(settings: Settings, witness: Witness) -> AsyncIterator[Listener]:
    """A listener in this process with the handlers of the folder; it leaves no process."""
    async with Listener(settings, hooks=[witness]) as listener:
        yield listener
    assert processes_below(os.getpid()) == []


async def written(path: Path) -> list[int]:
    """The numbers that a handler wrote, once it has."""
    async with asyncio.timeout(PATIENCE):
        while not (text := _text_of(path)):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    return list(map(int, text.split()))


def _text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_handler_runs_in_a_process_as_it_would_in_a_thread(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    async with listening(settings, witness):
        tasks = [
            await async_bridge.make_task("work.add", [1], 0, kwargs={"b": each}) for each in (1, 2)
        ]
        old = await async_bridge.make_task("work.old_name", [], 0)
        beside = await async_bridge.make_task("work.beside", [], 0)
        big = await async_bridge.make_task("work.big", ["x" * 60_000], 0)
        plain = await async_bridge.make_task("work.in_thread", [], 0)
        await witness.until_ended(6)
        for number, task in enumerate(tasks, 1):
            result = (await found(async_bridge, task)).result
            assert result.pop("pid") != os.getpid()
            expected = {"sum": 1 + number, "id": task.id, "attempt": 1, "seen": 0, "main": True}
            assert result == expected
        assert (await found(async_bridge, old)).result == 1
        assert (await found(async_bridge, beside)).result == 5
        assert (await found(async_bridge, big)).result == 60_000
        assert (await found(async_bridge, plain)).result == os.getpid()
    assert {event.end for event in witness.seen(Ended)} == {End.SUCCEEDED}
    assert {event.end for event in witness.seen(ProcessEnded)} == {ProcessEnd.STOPPED}


RAISED = {
    "retry": (End.RETRY, "later"),
    "snooze": (End.SNOOZED, "too early"),
    "discard": (End.FAILED, "never"),
    "error": (End.RETRY, "KeyError: 'the shop'"),
    "exit": (End.RETRY, "SystemExit: enough"),
    "own": (End.RETRY, "Own: 1 and 2"),
    "memory": (End.RETRY, "MemoryError\nits process reached its memory limit, 512 MiB"),
    "unprintable": (End.FAILED, "its error cannot be printed: to format it raised ValueError"),
}


async def test_what_it_raises_counts_as_in_a_thread(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    memory = Settings.read(
        url=settings.url, tasks=settings.tasks, processes=1, process_memory="512m"
    )
    async with listening(memory, witness):
        for number, (kind, (end, reason)) in enumerate(RAISED.items(), 1):
            task = await async_bridge.make_task("work.raise_one", [kind], 0, retry=["1h"])
            ended = (await witness.until_ended(number))[-1]
            after = await found(async_bridge, task)
            assert ended.end is end, kind
            assert ended.reason.endswith(reason), kind
            assert "/expirebridge/listener/" not in ended.reason
            assert (after.error or "").endswith(reason), kind
            assert after.state is (State.FAILED if end is End.FAILED else State.PENDING), kind
            if kind in {"error", "exit", "own", "memory"}:
                assert type(ended.error).__name__ in reason
    ends = [event.end for event in witness.seen(ProcessEnded)]
    assert ends == [ProcessEnd.MEMORY, ProcessEnd.STOPPED]


@pytest.mark.rest
async def test_a_result_that_does_not_fit_the_memory_limit_fails_nothing(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    memory = Settings.read(
        url=settings.url, tasks=settings.tasks, processes=1, process_memory="128m"
    )
    async with listening(memory, witness):
        task = await async_bridge.make_task("work.fill", [70_000_000], 0, retry=[])
        await witness.until_ended()
        after = await found(async_bridge, task)
    assert after.state is State.SUCCEEDED
    assert after.result == "(70,000,002 bytes of JSON, more than the 4,096 kept)"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit", "its process exited with code 7"),
        pytest.param("segfault", "its process was killed by SIGSEGV", marks=pytest.mark.rest),
        pytest.param(
            "kill", "its process was killed by SIGKILL: by somebody, or by the system for want",
            marks=pytest.mark.rest,
        ),
        pytest.param("close", "its process was killed by SIGKILL", marks=pytest.mark.rest),
    ],
)  # fmt: skip
async def test_a_crash_fails_that_attempt_alone(
    url: str, tasks: Path, async_bridge: AsyncBridge, tmp_path: Path, how: str, reason: str
) -> None:
    witness = Witness()
    path = tmp_path / "held"
    async with listening(Settings(url=url, tasks=tasks, processes=2), witness) as listener:
        other = await async_bridge.make_task("work.hold_until", [str(path)], 0)
        [held] = await written(path)
        crashed = await async_bridge.make_task("work.end", [how], 0, retry=["1h"])
        [ended] = await witness.until_ended()
        assert ended.task.id == crashed.id
        assert (ended.end, ended.reason[: len(reason)]) == (End.RETRY, reason)
        path.with_suffix(".end").touch()
        await witness.until_ended(2)
        assert (await found(async_bridge, other)).result == "held"
        again = await async_bridge.make_task("work.add", [1], 0)
        await witness.until_ended(3)
        assert (await found(async_bridge, again)).state is State.SUCCEEDED
        assert held in processes_below(os.getpid())
        assert not listener.registry.find("work.missing")


@pytest.mark.parametrize("handler", ["hold", pytest.param("hold_the_lock", marks=pytest.mark.rest)])
async def test_it_is_killed_at_its_timeout_with_what_it_started(
    settings: Settings, async_bridge: AsyncBridge, tmp_path: Path, handler: str
) -> None:
    witness = Witness()
    path = tmp_path / "held"
    async with listening(settings, witness):
        task = await async_bridge.make_task(
            f"work.{handler}", [str(path)], 0, retry=["1h"], timeout=1
        )
        pids = await written(path)
        with until_ended(pids):  # what it started is killed with it, but is no child of ours
            [ended] = await witness.until_ended()
            assert not lives(pids[0])
        assert (ended.end, ended.reason) == (End.RETRY, "timed out after 1 s")
        assert ended.duration >= 1
        assert (await found(async_bridge, task)).error == "timed out after 1 s"
    assert ProcessEnd.TIMEOUT in {event.end for event in witness.seen(ProcessEnded)}


async def test_a_cancelled_task_s_process_is_gone_before_that_is_recorded(
    url: str,
    tasks: Path,
    async_bridge: AsyncBridge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    witness = Witness()

    def wait(process: subprocess.Popen[bytes]) -> int:
        """A process may take a while to die."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        time.sleep(0.5)
        return patient(process)

    patient = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    path = tmp_path / "held"
    async with listening(Settings(url=url, tasks=tasks, processes=1, lease=1), witness):
        task = await async_bridge.make_task("work.hold", [str(path)], 0)
        pids = await written(path)
        await async_bridge.cancel(task.id)
        [ended] = await witness.until_ended()
        assert not any(map(lives, pids))
        assert (await found(async_bridge, task)).state is State.CANCELLED
    assert ended.reason == "it was cancelled"
    [gone] = [e for e in witness.seen(ProcessEnded) if e.end is ProcessEnd.CANCELLED]
    assert witness.events.index(gone) < witness.events.index(ended)


async def test_a_listener_that_stops_lets_it_end_and_gives_back_what_waits(
    url: str,
    tasks: Path,
    async_bridge: AsyncBridge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Supervisors and terminals send their signals to its processes, too."""
    witness = Witness()
    path = tmp_path / "held"
    monkeypatch.setenv("LIFE", str(tmp_path))
    async with listening(Settings(url=url, tasks=tasks, processes=1), witness) as listener:
        task = await async_bridge.make_task("work.hold", [str(path), 1.5], 0)
        [pid, _] = await written(path)
        waits = await async_bridge.make_task("work.add", [1], 0)
        await witness.until(lambda: len(witness.seen(Started)) == 2)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP):
            os.kill(pid, number)
        listener.stop()
    assert (await found(async_bridge, task)).result == "held"
    after = await found(async_bridge, waits)
    assert (after.state, after.error) == (State.PENDING, "its listener stopped")
    # What is given back is not withdrawn any more.
    assert listener._executor.withdraw() == []
    assert (tmp_path / str(pid)).read_text() == "closed"


async def test_a_listener_that_stops_at_once_kills_it_and_gives_the_task_back(
    settings: Settings, async_bridge: AsyncBridge, tmp_path: Path
) -> None:
    witness = Witness()
    path = tmp_path / "held"
    async with listening(settings, witness) as listener:
        task = await async_bridge.make_task("work.hold", [str(path)], 0)
        pids = await written(path)
        listener.stop(at_once=True)
    assert not any(map(lives, pids))
    after = await found(async_bridge, task)
    assert (after.state, after.error) == (State.PENDING, "its listener stopped")


@pytest.mark.rest
async def test_processes_are_gone_before_a_blocked_listener_gives_their_tasks_back(
    url: str,
    tasks: Path,
    async_bridge: AsyncBridge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another listener may run them from then on."""
    path = tmp_path / "held"
    living: list[list[int]] = []
    settle = EmergencySettler._settle

    def look_and_settle(
        settler: EmergencySettler, consumer: Consumer, settlements: Sequence[Settlement]
    ) -> list[Settled]:
        if settlements:
            living.append([pid for pid in pids if lives(pid)])
        return settle(settler, consumer, settlements)

    monkeypatch.setattr(EmergencySettler, "_settle", look_and_settle)
    settings = Settings(url=url, tasks=tasks, processes=1, grace=0.05, lease=1)
    registry = Registry.of(settings)
    block = registry.find("work.block")
    assert block is not None
    released: threading.Event = block.function.__globals__["RELEASED"]
    listener = Listener(settings, registry, on_blocked=lambda _: released.set())
    running = asyncio.create_task(listener.run())
    held = await async_bridge.make_task("work.hold", [str(path)], 0)
    pids = await written(path)
    blocks = await async_bridge.make_task("work.block", [], 0, retry=[], timeout=0.05)
    with until_ended(pids), pytest.raises(ListenerStuck):
        await running
    assert living == [[]]
    after = await found(async_bridge, held)
    assert (after.state, after.attempt, after.lapses) == (State.PENDING, 0, 0)
    assert (await found(async_bridge, blocks)).state is State.FAILED


@pytest.mark.rest
async def test_a_listener_of_such_handlers_alone_claims_no_more_than_it_has_processes(
    url: str, tasks: Path, async_bridge: AsyncBridge, tmp_path: Path
) -> None:
    """What it cannot begin another listener may begin at once."""
    witnesses = Witness(), Witness()
    settings = Settings(url=url, tasks=tasks, processes=1, functions=("work.hold", "work.add"))
    async with (
        listening(settings, witnesses[0]) as first,
        AsyncExitStack() as stack,
    ):
        for name in ("one", "two", "three"):
            await async_bridge.make_task("work.hold", [str(tmp_path / name)], 0)
        await witnesses[0].until(lambda: witnesses[0].seen(Started))
        counted = await async_bridge.count()
        assert (counted.running, counted.pending) == (1, 2)
        second = await stack.enter_async_context(Listener(settings, hooks=[witnesses[1]]))
        await witnesses[1].until(lambda: witnesses[1].seen(Started))
        assert [len(witness.seen(Started)) for witness in witnesses] == [1, 1]
        listed = await async_bridge.list(state="pending")
        await async_bridge.cancel_all([task.id for task in listed.tasks])
        for listener in (first, second):
            listener.stop(at_once=True)


@pytest.mark.rest
async def test_beside_other_handlers_it_claims_as_many_as_run_at_once(
    url: str, tasks: Path, async_bridge: AsyncBridge, tmp_path: Path
) -> None:
    settings = Settings(url=url, tasks=tasks, processes=1)
    witness = Witness()
    async with listening(settings, witness) as listener:
        path = tmp_path / "held"
        await async_bridge.make_task("work.hold", [str(path)], 0)
        await written(path)
        waits = await async_bridge.make_task("work.add", [1], 0)
        await witness.until(lambda: len(witness.seen(Started)) == 2)
        assert (await found(async_bridge, waits)).state is State.RUNNING
        await async_bridge.make_task("work.in_thread", [], 0)
        [ended] = await witness.until_ended()
        assert ended.task.func == "work.in_thread"
        listener.stop(at_once=True)


async def test_what_it_logs_is_in_the_listener_s_log_with_its_task(
    settings: Settings, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(fields := TaskFields())
    caplog.set_level(logging.WARNING)
    witness = Witness()
    async with listening(settings, witness):
        task = await async_bridge.make_task("work.say", [], 0)
        await witness.until_ended()
    caplog.handler.removeFilter(fields)
    sold, unsold, mistaken = [record for record in caplog.records if record.name == "shop"]
    assert sold.getMessage() == "sold 5"
    assert vars(sold)["price"] == [1, "{2}"]
    assert vars(sold)["task"] == task.id
    assert sold.process not in {None, os.getpid()}
    assert "ZeroDivisionError" in (unsold.exc_text or "")
    assert mistaken.getMessage().startswith("a message that cannot be formatted (TypeError): see ")


@pytest.mark.rest
async def test_what_it_starts_gets_signals_as_usual(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    async with listening(settings, witness):
        program = await async_bridge.make_task("work.terminate_a_program", [], 0)
        fork = await async_bridge.make_task("work.fork", [], 0)
        await witness.until_ended(2)
        assert (await found(async_bridge, program)).result == -signal.SIGTERM
        assert (await found(async_bridge, fork)).result == 1


@pytest.mark.rest
async def test_a_coroutine_is_no_result(settings: Settings, async_bridge: AsyncBridge) -> None:
    witness = Witness()
    async with listening(settings, witness):
        await async_bridge.make_task("work.gives_a_coroutine", [], 0, retry=[])
        [ended] = await witness.until_ended()
    assert "with process=True, let asyncio.run await it" in ended.reason


@pytest.mark.rest
async def test_a_generator_is_no_result_either(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    async with listening(settings, witness):
        await async_bridge.make_task("work.gives_a_generator", [], 0, retry=[])
        [ended] = await witness.until_ended()
    assert ended.end is End.FAILED
    assert "RuntimeError: it returned a generator (_pages)" in ended.reason


async def test_what_waits_for_a_process_does_not_begin_after_its_lease(
    settings: Settings, async_bridge: AsyncBridge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another listener may run it by then: its process looks again, right before the call."""
    witness = Witness()
    # What the listener sees at the hand-over is fresh; by the process's clock it is over.
    monkeypatch.setattr(Leases, "fresh_until", lambda *_: 0.0)
    monkeypatch.setattr(Leases, "is_fresh", lambda *_: True)
    async with listening(settings, witness):
        path = tmp_path / "ran"
        task = await async_bridge.make_task("work.end", ["", str(path)], 0)
        released = await witness.until_ended(1, End.RELEASED)
        assert released[0].reason == "its listener was held up, for longer than its lease"
        assert not path.exists()
        monkeypatch.undo()
        await witness.until_ended(1, End.SUCCEEDED)
        assert (await found(async_bridge, task)).attempt == 1


async def test_a_process_that_is_killed_before_it_began_costs_no_attempt(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    async with listening(settings, witness):
        first = await async_bridge.make_task("work.add", [1], 0)
        await witness.until_ended()
        pid = (await found(async_bridge, first)).result["pid"]
        # It is given the call, and cannot take it.
        os.kill(pid, signal.SIGSTOP)
        task = await async_bridge.make_task("work.add", [1], 0, retry=[])
        await witness.until(lambda: len(witness.seen(Started)) == 2)
        os.kill(pid, signal.SIGKILL)
        await witness.until_ended(2, End.SUCCEEDED)
        assert (await found(async_bridge, task)).result["attempt"] == 1
    [released] = witness.ended(End.RELEASED)
    assert released.reason == "its process ended before it began"
    assert not witness.ended(End.FAILED)


@pytest.mark.rest
async def test_a_process_that_cannot_start_fails_one_attempt_after_the_other(
    settings: Settings,
    async_bridge: AsyncBridge,
    tasks: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The pauses grow, and once it can start, it does."""
    witness = Witness()
    monkeypatch.setattr(pool, "FIRST_PAUSE", 0.05)
    broken = tasks / "broken.py"
    registry = Registry.of(settings)
    broken.write_text("raise ImportError('the shop is gone')")
    async with Listener(settings, registry, hooks=[witness]):
        await until_logged(lambda: "no process for handlers could be started" in caplog.text)
        for _ in range(3):
            await async_bridge.make_task("work.add", [1], 0, retry=["1h"])
        for ended in await witness.until_ended(3):
            assert ended.end is End.RETRY
            assert ended.reason.startswith("its process cannot start: ")
            assert ended.reason.endswith("ImportError: the shop is gone")
        pauses = [float(each.split(" s:")[0]) for each in caplog.text.split("next try is in ")[1:]]
        assert pauses == sorted(pauses)
        assert pauses[-1] >= 0.2
        broken.unlink()
        await async_bridge.make_task("work.add", [1], 0)
        await witness.until_ended(1, End.SUCCEEDED)
    assert processes_below(os.getpid()) == []


@pytest.mark.rest
async def test_what_a_process_with_newer_code_lacks_waits_as_an_unknown_function_does(
    settings: Settings, async_bridge: AsyncBridge, tasks: Path
) -> None:
    """A process that is started later loads the code that is there then."""
    witness = Witness()
    registry = Registry.of(settings)
    (tasks / "work.py").write_text(HANDLERS.replace("def add(", "def plus("))
    async with Listener(settings, registry, hooks=[witness]):
        task = await async_bridge.make_task("work.add", [1], 0, retry=[])
        [ended] = await witness.until_ended()
        assert ended.end is End.RELEASED
        assert ended.reason.startswith("no handler 'work.add' in the process that was to call it")
        after = await found(async_bridge, task)
        assert (after.state, after.attempt) == (State.PENDING, 0)
        assert UNKNOWN_DELAY - 5 < (after.due - datetime.now(UTC)).total_seconds() <= UNKNOWN_DELAY


@pytest.mark.rest
async def test_arguments_that_fit_the_listener_s_code_and_not_the_newer_one_wait(
    settings: Settings, async_bridge: AsyncBridge, tasks: Path
) -> None:
    """No TypeError of the handler, which an attempt would be used for."""
    witness = Witness()
    registry = Registry.of(settings)
    (tasks / "work.py").write_text(HANDLERS.replace("def add(a, b=1)", "def add(a, b)"))
    async with Listener(settings, registry, hooks=[witness]):
        task = await async_bridge.make_task("work.add", [1], 0, retry=[])
        unfit = await async_bridge.make_task("work.add", [1, 2, 3], 0, retry=[])
        await witness.until_ended(2)
        after = await found(async_bridge, task)
        assert (after.state, after.attempt) == (State.PENDING, 0)
        assert after.error is not None
        assert after.error.startswith(
            "its arguments do not fit: add(a, b): missing a required argument: 'b', in the pro"
        )
        assert UNKNOWN_DELAY - 5 < (after.due - datetime.now(UTC)).total_seconds() <= UNKNOWN_DELAY
        # What fits neither fails at once, as it would in a thread.
        refused = await found(async_bridge, unfit)
        assert (refused.state, refused.error) == (
            State.FAILED,
            "its arguments do not fit: add(a, b=1): too many positional arguments",
        )
        await async_bridge.make_task("work.beside", [], 0)
        await witness.until_ended(1, End.SUCCEEDED)


async def test_without_such_handlers_there_is_no_process(
    url: str, tmp_path: Path, async_bridge: AsyncBridge
) -> None:
    put(tmp_path / "plain", "work.py", "def add(a): return a")
    witness = Witness()
    settings = Settings(url=url, tasks=tmp_path / "plain")
    with forgotten(tmp_path):
        async with Listener(settings, hooks=[witness]) as listener:
            await async_bridge.make_task("work.add", [1], 0)
            await witness.until_ended()
            assert listener._executor._processes is None
            assert processes_below(os.getpid()) == []
