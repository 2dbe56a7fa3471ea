"""Jobs that each library scheduled are imported, and run here at their times, each once."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, Task
from expirebridge.task.task import from_ms
from tests.importing import libraries
from tests.importing.libraries import HOUR
from tests.kit.processes import Reports, listener, run

pytestmark = pytest.mark.rest

SOON, LATER = 3, 20
AHEAD = 15_000
"""Ms until the first jobs are due: scheduling and importing take two seconds of them, and ten on a
busy machine."""


def by_bullmq(url: str, due: list[int]) -> None:
    jobs = [
        {"queue": "mail", "name": "send", "data": {"n": n}, "due": at} for n, at in enumerate(due)
    ]
    libraries.bullmq(url, add=jobs)


def by_celery(url: str, due: list[int]) -> None:
    libraries.celery(url, send=[{"args": [n], "eta_ms": at} for n, at in enumerate(due)])


def by_arq(url: str, due: list[int]) -> None:
    jobs = [{"name": "send", "args": [n], "due_ms": at} for n, at in enumerate(due)]
    libraries.arq(url, enqueue=jobs)


MAPPED = {
    "bullmq": [],
    "celery": ["--map", "mail.tasks.send=mail.send"],
    "arq": ["--map", "send=mail.send"],
}


def imported(*words: str, url: str) -> Any:
    """The report of the command in a process of its own, which imports the handlers."""
    done = run(*words, "--json", url=url)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("library", "schedule"), [("bullmq", by_bullmq), ("celery", by_celery), ("arq", by_arq)]
)
def test_each_job_runs_once_when_it_is_due(
    old: str, url: str, bridge: Bridge, reports: Reports, mailing: Path, now_ms: int,
    library: str, schedule: Callable[[str, list[int]], None],
) -> None:  # fmt: skip
    due = [now_ms + AHEAD + 100 * n for n in range(SOON)] + [
        now_ms + HOUR + n for n in range(LATER)
    ]
    words = ("import", "--from", library, old, *MAPPED[library], "--tasks", str(mailing))
    with listener(url, mailing):
        schedule(old, due)
        before = libraries.snapshot(old)
        dry = imported(*words, "--dry-run", url=url)
        assert dry["would_create"] == SOON + LATER
        assert bridge.count().pending == 0
        done = imported(*words, url=url)
        ran = [reports.next() for _ in range(SOON)]
        while bridge.count().succeeded < SOON:
            time.sleep(0.01)
    ends = ("created", "kept", "left", "refused")
    assert [done[end] for end in ends] == [SOON + LATER, 0, 0, 0]
    assert done["functions"] == dry["functions"]
    assert list(done["functions"]) == ["mail.send"]
    assert [task.due for task in bridge.list(state="pending").tasks] == [
        from_ms(at) for at in due[SOON:]
    ]
    for one in ran:
        task = bridge.get(one.id)
        assert task is not None
        # The handler is on this machine, and so is the server.
        assert one.at * 1000 >= due[number_of(task)]
    assert len({one.id for one in ran}) == SOON
    again = imported(*words, url=url)
    assert [again[end] for end in ends] == [0, SOON + LATER, 0, 0]
    counts = bridge.count()
    assert (counts.succeeded, counts.pending) == (SOON, LATER)
    assert libraries.snapshot(old) == before


def number_of(task: Task) -> int:
    """Which of the jobs it was."""
    [first] = task.args
    return int(first["n"] if isinstance(first, dict) else first)
