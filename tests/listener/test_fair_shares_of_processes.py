"""Tasks that are due together meet several listeners; each is a process of its own."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge
from tests.kit.processes import Reports, listener

TASKS = 20
LEASE = ("--lease", "600")
"""A dead listener counts for half of it: for longer than a report is waited for."""

PATIENT = """
from expirebridge.listener.partition import fair_share as fairness

fairness.PATIENCE = 3600.0
"""
"""In the handlers' folder: what is left to others waits for them, however busy the machine is."""


def until_they_know_each_other(url: str, count: int) -> None:
    """Wait until so many listeners have taken the answer to a beat that all of them preceded."""
    with redis.Redis.from_url(url) as client:

        def beats() -> dict[bytes, float]:
            return dict(client.zrange("expirebridge:listeners", 0, -1, withscores=True))

        while len(beats()) < count:
            time.sleep(0.01)
        # A listener has taken the answer to its last beat when it beats again.
        for _ in range(2):
            before = beats()
            while any(beats()[name] == at for name, at in before.items()):
                client.publish("expirebridge:doorbell:1", "beat")
                time.sleep(0.02)


@pytest.mark.parametrize(
    ("listeners", "shares"), [(2, [10, 10]), pytest.param(3, [6, 7, 7], marks=pytest.mark.rest)]
)
def test_each_listener_takes_its_share(
    url: str, bridge: Bridge, folder: Path, reports: Reports, listeners: int, shares: list[int]
) -> None:
    (folder / "patient.py").write_text(PATIENT)
    with ExitStack() as stack:
        for _ in range(listeners):
            stack.enter_context(listener(url, folder))
        until_they_know_each_other(url, listeners)
        bridge.make_tasks([{"func": "acts.hold", "delay": 0}] * TASKS)
        started = Counter(reports.next().pid for _ in range(TASKS))
    assert sorted(started.values()) == shares


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def leave(pid: int) -> None:
    """Leave it as it is: it has room for one."""
    del pid


@pytest.mark.rest
@pytest.mark.parametrize("happens", [kill, stop, leave])
def test_what_a_listener_cannot_take_the_other_takes_at_once(
    url: str, bridge: Bridge, folder: Path, reports: Reports, happens: Callable[[int], None]
) -> None:
    with (
        listener(url, folder, *LEASE, "--concurrency", "1") as small,
        listener(url, folder, *LEASE) as large,
    ):
        until_they_know_each_other(url, 2)
        happens(small.pid)
        bridge.make_tasks([{"func": "acts.hold", "delay": 0}] * TASKS)
        started = [reports.next() for _ in range(TASKS)]
    by_large = sum(each.pid == large.pid for each in started)
    assert by_large >= TASKS - (happens is leave)
