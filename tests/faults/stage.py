"""What every fault test needs: listeners, injections, the wait for the end, and the verdict."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from expirebridge import Bridge, Task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.table import TABLE, Fault
from tests.kit.checker import Verdict, check, judge_lateness, look_up
from tests.kit.history import GaveUp, Killed, Made, Stopped, Writer, now, read
from tests.kit.patience import PATIENCE
from tests.kit.processes import Report, listener, until_ended, workers

ROUNDS = int(os.environ.get("ROUNDS", "1"))
FINISHED_WITHIN = 30.0
"""Seconds that a round's tasks have to end, once the test does no more to them: the default."""


OF_LEDGERS = ("selling.py", "_pointed.py")
"""Handlers' modules for listeners that have a ledger: they import SQLAlchemy."""
OTHERS = ("apart.py", "halting.py", "misbehaving.py")
"""What those need not load: handlers in processes cost a listener's start most."""
WITH_LIMITS = ("deciding.py", "limited.py")
"""A listener with these starts on one partition only."""


def copy_handlers(folder: Path, *, ledger: bool = False, limits: bool = False) -> Path:
    """Make a handlers' folder of the handlers that write into the history."""
    left_out = (*(OTHERS if ledger else OF_LEDGERS), *(() if limits else WITH_LIMITS))
    without = shutil.ignore_patterns("__pycache__", *left_out)
    return Path(shutil.copytree(Path(__file__).parent / "handlers", folder, ignore=without))


def make(
    bridge: Bridge,
    history: Writer,
    items: Iterable[tuple[str, list[Any]]],
    *,
    delay: float = 0,
    retry: Sequence[float] = (),
    timeout: float | None = None,
) -> list[Task]:
    """Make tasks of these functions and arguments, all due at once, and write them down."""
    at = datetime.now(UTC) + timedelta(seconds=delay)
    common = {"at": at, "retry": list(retry), "timeout": timeout}
    tasks = bridge.make_tasks([{"func": func, "args": args} | common for func, args in items])
    attempts = len(retry) + 1
    history.write(
        *(Made(id=t.id, due=to_ms(t.due), attempts=attempts, timeout=timeout) for t in tasks)
    )
    return tasks


def recorded_listener(
    url: str,
    folder: Path,
    history: Writer,
    *options: str,
    lease: float,
    env: Mapping[str, str] | None = None,
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A listener process whose handlers write into the history."""
    env = {"HISTORY": str(history.folder), **(env or {})}
    return listener(url, folder, "--lease", f"{lease:g}", *options, **env)


def recorded_workers(
    url: str, folder: Path, history: Writer, count: int, *options: str, lease: float
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A parent of so many workers, whose handlers write into the history."""
    lease_option = ("--lease", f"{lease:g}")
    return workers(url, folder, count, *lease_option, *options, HISTORY=str(history.folder))


class Listeners:
    """Listener processes, as many as `start` is called for, until the `with` block ends."""

    def __init__(
        self, url: str, folder: Path, history: Writer, *options: str, lease: float
    ) -> None:
        self.by_pid: dict[int, subprocess.Popen[bytes]] = {}
        """All that were started: a handler reports its process by number."""
        self._new = lambda: recorded_listener(url, folder, history, *options, lease=lease)
        self._stack = ExitStack()

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more; it is up when this returns."""
        process = self._stack.enter_context(self._new())
        self.by_pid[process.pid] = process
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def kill(process: subprocess.Popen[bytes], history: Writer) -> None:
    """Kill a process, as a crash would, and write it down."""
    at = now()
    process.kill()
    process.wait()
    history.write(Killed(pid=process.pid, at=at, until=now()))


def kill_worker(pid: int, history: Writer) -> None:
    """Kill a worker, which is another process's child, and write it down."""
    at = now()
    with until_ended([pid]):
        os.kill(pid, signal.SIGKILL)
    history.write(Killed(pid=pid, at=at, until=now()))


def ended_itself(process: subprocess.Popen[bytes], dying: Report, history: Writer) -> None:
    """Wait until a process is gone whose handler reported that it would end it; write it down."""
    process.wait(PATIENCE)
    history.write(Killed(pid=process.pid, at=int(dying.at * 1000), until=now()))


def gave_up(listeners: Listeners, dying: Report, history: Writer) -> None:
    """Wait until a listener has exited because of the handler that reported; write it down."""
    process = listeners.by_pid[dying.pid]
    assert process.wait(PATIENCE) == 4
    history.write(GaveUp(pid=process.pid, at=now()))


@contextmanager
def held_still(process: subprocess.Popen[bytes], history: Writer) -> Iterator[None]:
    """Stop a process for as long as the block takes, and write it down."""
    at = now()
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        until = now()
        process.send_signal(signal.SIGCONT)
        history.write(Stopped(pid=process.pid, at=at, until=until))


def until(holds: Callable[[], bool], *, within: float = FINISHED_WITHIN) -> None:
    """Wait until this is true, or the time is over: the checker tells the rest.

    Nothing signals that an outcome was recorded, so this has to ask.
    """
    deadline = time.monotonic() + within
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)


def until_finished(bridge: Bridge, *, within: float = FINISHED_WITHIN) -> None:
    """Wait until no task is pending, waiting or running, or the time is over."""

    def is_finished() -> bool:
        counts = bridge.count()
        return not counts.pending + counts.waiting + counts.running

    until(is_finished, within=within)


def judge(
    fault: Fault,
    server: EmbeddedServer,
    bridge: Bridge,
    history: Writer,
    *,
    lease: float,
    times: int = 1,
    may_forget: bool = False,
) -> Verdict:
    """The verdict over a round with so many injections of the fault; it goes into the table."""
    events = read(history.folder)
    found = look_up(bridge, events)
    verdict = check(events, found, lease=lease, may_forget=may_forget)
    # Beside other tests a listener, or the process of a handler, gets no time for seconds, which
    # neither of them sees: so it counts in `make faults` only.
    if ROUNDS > 1:
        judge_lateness(events, found, verdict)
    TABLE.add(fault, server.binary.name, verdict, times)
    return verdict
