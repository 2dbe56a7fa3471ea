"""Handlers that no listener should have to bear: what becomes of their tasks, and of the others."""

import random
import resource
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import (
    ROUNDS,
    Listeners,
    ended_itself,
    gave_up,
    held_still,
    judge,
    make,
    recorded_listener,
    until_finished,
)
from tests.faults.table import Fault
from tests.kit.history import Started, Writer, read
from tests.kit.processes import Reports, until_logged

LEASE = 1.0

POISON = Fault(
    name="a poison task among 50 others",
    injected="its handler ends the listener's process, by `os._exit`, a segmentation fault or "
    "`SIGKILL`, each time it runs",
    promise="it is failed after three lapses, with the reason; the others succeed",
)
DEATHS = 3
INNOCENTS = 50
WORK = 0.05
"""Seconds that each innocent takes: none is through when the poison works."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_poison_task_harms_no_other(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    """All are claimed together, so the innocents' listeners die twice, too."""
    way = ("exit", "segfault", "kill")[round % 3]
    place = random.Random(round).randrange(INNOCENTS + 1)  # noqa: S311 - the same rounds each time
    calls: list[tuple[str, list[Any]]] = [("recorded.work", [WORK, 0])] * INNOCENTS
    calls.insert(place, ("misbehaving.kill_listener", [way]))
    tasks = make(bridge, history, calls)
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        for _ in range(DEATHS):
            ended_itself(listeners.start(), reports.next(), history)
        listeners.start()
        until_finished(bridge)
    verdict = judge(POISON, server, bridge, history, lease=LEASE, times=DEATHS)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: INNOCENTS, State.FAILED: 1}
    poison = bridge.get(tasks[place].id)
    assert poison is not None
    assert poison.error == "3 listeners died, or fell silent, while they ran it"


ENDS_PROCESS = Fault(
    name="a handler ends its listener's process",
    injected="`os._exit(0)` and a segmentation fault inside a handler, once each",
    promise="another listener runs the task, within a lease and a second",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_handler_that_ends_its_process_is_run_elsewhere(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    """An exit code of 0 is no outcome either."""
    ways = ("exit", "segfault")
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        listeners.start()
        for way in ways:
            listeners.start()
            make(bridge, history, [("misbehaving.kill_first_listener", [way])])
            dying = reports.next()
            ended_itself(listeners.by_pid[dying.pid], dying, history)
        until_finished(bridge)
    verdict = judge(ENDS_PROCESS, server, bridge, history, lease=LEASE, times=len(ways))
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: len(ways)}
    assert verdict.twice == {"killed": len(ways)}


BLOCKS = Fault(
    name="a handler blocks the event loop",
    injected="`time.sleep` for three leases in an async handler, before the 20 tasks that its "
    "listener claimed with it have begun",
    promise="it keeps its lease and runs once; another listener runs the others meanwhile",
)
BEHIND = 20


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_waits_behind_a_blocked_event_loop_runs_elsewhere(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    """Nothing that has begun is given up: it would run twice."""
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        second = listeners.start()
        with held_still(second, history):
            [blocker] = make(bridge, history, [("misbehaving.block_loop", [3 * LEASE])], delay=-1)
            make(bridge, history, [("recorded.work", [0, 0])] * BEHIND)
            first = listeners.start()
            assert reports.next().id == blocker.id
        until_finished(bridge)
    verdict = judge(BLOCKS, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: 1 + BEHIND}
    assert not verdict.twice
    ran = {event.id: event.pid for event in read(history.folder) if isinstance(event, Started)}
    assert ran.pop(blocker.id) == first.pid
    assert set(ran.values()) == {second.pid}
    until_logged("misbehaving.block_loop", folder)


NEVER_RETURNS = Fault(
    name="a handler never returns, and cannot be stopped",
    injected="a plain function that waits for ever, an async one that does so in the event loop, "
    "and one that ignores its cancellation, once each",
    promise="a grace time after its timeout the listener exits with code 4; the attempt counts as "
    "a timeout, and the task is tried again",
)
WAYS_TO_STAY = ("never_return", "never_give_way", "ignore_cancellation")


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_handler_that_cannot_be_stopped_costs_its_listener_and_no_task(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    with Listeners(server.url, folder, history, "--grace", "0.3", lease=LEASE) as listeners:
        listeners.start()
        for way in WAYS_TO_STAY:
            listeners.start()
            make(bridge, history, [(f"misbehaving.{way}", [])], retry=[0.1], timeout=1.0)
            gave_up(listeners, reports.next(), history)
            until_finished(bridge)
    times = len(WAYS_TO_STAY)
    verdict = judge(NEVER_RETURNS, server, bridge, history, lease=LEASE, times=times)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: times}
    assert verdict.twice == {"overrun": times}


OVERRUNS = Fault(
    name="a plain handler overruns its timeout among 20 others",
    injected="it never returns, in either of its two attempts; the others, plain and async, "
    "run beside it for longer than its timeout and the grace time",
    promise="the listener claims no more, and each of the others runs once; then it records that "
    "the attempt timed out, and exits with code 4",
)
BESIDE = 10
LONG = 2.5
"""Seconds that each of the others takes: they still run when the listener gives up."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_an_overrun_does_not_punish_what_runs_beside_it(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    with Listeners(server.url, folder, history, "--grace", "0.3", lease=LEASE) as listeners:
        first = listeners.start()
        innocents: list[tuple[str, list[Any]]] = [
            ("recorded.labour", [LONG, 0]),
            ("recorded.work", [LONG, 0]),
        ]
        make(bridge, history, innocents * BESIDE)
        culprit: list[tuple[str, list[Any]]] = [("misbehaving.never_return_at_all", [])]
        [task] = make(bridge, history, culprit, retry=[0.1], timeout=0.5)
        dying = reports.next()
        until_logged("this listener claims no more", folder)
        make(bridge, history, [("recorded.work", [0, 0])])
        gave_up(listeners, dying, history)
        assert bridge.count().pending == 2  # the second attempt, and what came later
        second = listeners.start()
        gave_up(listeners, reports.next(), history)
    verdict = judge(OVERRUNS, server, bridge, history, lease=LEASE, times=2)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: 2 * BESIDE + 1, State.FAILED: 1}
    assert verdict.twice == {"overrun": 1}
    found = bridge.get(task.id)
    assert found is not None
    assert found.error == "timed out after 0.5 s and could not be stopped"
    assert (found.attempt, found.lapses) == (2, 0)
    starts = [event.pid for event in read(history.folder) if isinstance(event, Started)]
    assert (starts.count(first.pid), starts.count(second.pid)) == (2 * BESIDE + 1, 2)


TIMES_OUT = Fault(
    name="an async handler never ends",
    injected="it waits for what never comes, in each of two attempts",
    promise="it is cancelled at its timeout, tried again, and failed for that reason",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_an_async_handler_that_never_ends_times_out(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    with recorded_listener(server.url, folder, history, lease=LEASE):
        make(bridge, history, [("misbehaving.wait_forever", [])], retry=[0.1], timeout=0.3)
        until_finished(bridge)
    verdict = judge(TIMES_OUT, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.FAILED: 1}
    assert verdict.twice == {"timeout": 1}


FORKS = Fault(
    name="a handler forks, and the child comes back",
    injected="a child returns from a plain handler, gives way in an async one, calls `sys.exit`, "
    "or gets a `SIGTERM`",
    promise="the child ends there: only the parent settles the task and runs others",
)
WAYS_TO_FORK = ("fork_and_return", "fork_and_give_way", "fork_and_exit", "fork_and_terminate")


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_forked_child_is_no_listener(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    """The parents wait for their children, and report how they ended."""
    with recorded_listener(server.url, folder, history, lease=LEASE) as process:
        # The event loop has the others to run when the children come back to it.
        for way in WAYS_TO_FORK:
            make(bridge, history, [("recorded.work", [0.01, 0])] * BEHIND, delay=0.2)
            make(bridge, history, [(f"misbehaving.{way}", [])], delay=0.2, timeout=10)
        until_finished(bridge)
    verdict = judge(FORKS, server, bridge, history, lease=LEASE, times=len(WAYS_TO_FORK))
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: len(WAYS_TO_FORK) * (1 + BEHIND)}
    assert not verdict.twice
    starts = [event for event in read(history.folder) if isinstance(event, Started)]
    assert {start.pid for start in starts} == {process.pid}
    log = (folder.parent / "listeners.log").read_text()
    assert log.count("a child process that a handler forked returned") == 2
    assert "stopping" not in log
    assert "Exception ignored" not in log


DEVOURS = Fault(
    name="a handler takes memory without end",
    injected="an async handler in a listener with an `RLIMIT_AS` of 512 MiB more than it has",
    promise="`MemoryError` is a failure like any other: it is retried, and the listener goes on",
)
ROOM = 512 * 2**20


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_handler_that_takes_all_memory_fails_alone(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    with recorded_listener(server.url, folder, history, lease=LEASE) as process:
        # In pages, the size of its address space comes first.
        pages = Path(f"/proc/{process.pid}/statm").read_text().split()[0]
        limit = int(pages) * resource.getpagesize() + ROOM
        resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, limit))
        [devouring] = make(bridge, history, [("misbehaving.devour", [])], retry=[0.1])
        make(bridge, history, [("recorded.work", [WORK, 0])] * BEHIND)
        until_finished(bridge)
        assert process.poll() is None
    verdict = judge(DEVOURS, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: BEHIND, State.FAILED: 1}
    assert verdict.twice == {"retry": 1}
    found = bridge.get(devouring.id)
    assert found is not None
    assert "MemoryError" in (found.error or "")
