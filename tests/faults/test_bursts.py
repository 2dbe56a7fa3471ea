"""Very many tasks come due at once: each runs once, in bounded memory, and no listener idles."""

import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.stage import ROUNDS, Listeners, judge, make, until_finished
from tests.faults.table import Fault
from tests.kit.history import Made, Started, Writer, read

TEN = Fault(
    name="ten listeners wake up for one burst",
    injected="2,000 tasks are due in one millisecond, and all listeners ask for them",
    promise="each task runs once, and each listener has a share",
)
LEASE = 10.0
"""The default: that many processes on few cores can be slow to beat."""
LISTENERS = 10
BURST = 2000
LEAD = 1.5
"""Seconds in which a burst is made before it is due."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_ten_listeners_share_one_burst(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    capacity = ("--concurrency", "20")
    with Listeners(server.url, folder, history, *capacity, lease=LEASE) as listeners:
        for _ in range(LISTENERS):
            listeners.start()
        make(bridge, history, [("recorded.work", [0.01, 0])] * BURST, delay=LEAD)
        until_finished(bridge)
    verdict = judge(TEN, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: BURST}
    assert not verdict.twice
    shares = Counter(e.pid for e in read(history.folder) if isinstance(e, Started))
    assert set(shares) == set(listeners.by_pid)


MANY = Fault(
    name="100,000 tasks come due in one second",
    injected="they are made beforehand, for two listeners",
    promise="each runs once; no listener grows by more than 64 MiB",
)
TASKS = 100_000 if ROUNDS > 1 else 5_000
MAKING = 60.0 if ROUNDS > 1 else 4.0
"""Seconds in which they are made before the first is due, on a machine that has the time."""
GROWTH = (64 if ROUNDS > 1 else 8) * 2**20
"""Bytes by which a listener may grow: 100,000 names of keys that wait to be looked at are the most
that it holds, beside the tasks that it runs."""


def test_very_many_tasks_at_once_take_bounded_memory(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    print_later: Callable[[str], None],
) -> None:
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        pair = [listeners.start() for _ in range(2)]
        before = [memory_of(process, "VmRSS") for process in pair]
        begin = datetime.now(UTC) + timedelta(seconds=MAKING)
        tasks = bridge.make_tasks(
            {"func": "recorded.work", "args": [0, 0], "at": begin + timedelta(seconds=n / TASKS)}
            for n in range(TASKS)
        )
        history.write(*(Made(id=task.id, due=to_ms(task.due), attempts=1) for task in tasks))
        until_finished(bridge, within=MAKING + 300)
        peaks = [memory_of(process, "VmHWM") for process in pair]
    # More succeed than are kept, so the older ones may be forgotten by now.
    verdict = judge(MANY, server, bridge, history, lease=LEASE, may_forget=True)
    assert verdict.sound, str(verdict)
    assert not verdict.twice
    growth = [peak - idle for peak, idle in zip(peaks, before, strict=True)]
    shown = " and ".join(f"{each / 2**20:.0f}" for each in growth)
    print_later(f"{TASKS:,} tasks in a second: the listeners grew by {shown} MiB")
    assert max(growth) < GROWTH


def memory_of(process: subprocess.Popen[bytes], field: str) -> int:
    """Bytes of memory: VmRSS is what the process has, VmHWM the most that it had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024
