"""After each gap, one line about what was late."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from expirebridge.hooks import Claimed, Event, Gap, Misfired, Scanned, Started
from expirebridge.lateness import roles
from expirebridge.lateness.roles import LateReport
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.task.lateness import LateCause
from expirebridge.task.task import State, Task

GAP = Gap(reason="the server was away")
DONE = Scanned(adopted=0)
NOTHING = Claimed(count=0)


def started(
    lateness: float, func: str = "mail.send", cause: LateCause | None = LateCause.NOBODY
) -> Started:
    task = Task(id="a", func=func, key=b"", state=State.RUNNING, due=datetime.now(UTC))
    return Started(task=task, lateness=lateness, cause=cause if lateness > 1 else None)


def told(caplog: pytest.LogCaptureFixture, *events: Event) -> list[dict[str, Any]]:
    """The fields of each report."""
    caplog.set_level(logging.DEBUG, "expirebridge")
    report = LateReport()
    for event in events:
        report.hear(event)
    return [vars(record)["fields"] for record in caplog.records]


def test_what_was_late_is_told_once_with_its_causes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    misfired = Misfired(
        task=started(0).task, lateness=7200, done="skipped", cause=LateCause.TAKEN_OVER
    )
    [fields] = told(
        caplog, started(90), GAP, started(30, "orders.rate"), misfired,
        Scanned(adopted=2), started(1.5, cause=None), NOTHING, NOTHING, started(50), NOTHING,
    )  # fmt: skip
    assert fields == {
        "reason": "the server was away",
        "count": 4,
        "longest_ms": 7_200_000,
        "functions": {"mail.send": 3, "orders.rate": 1},
        "causes": {"nobody": 2, "taken-over": 1},
        "done": {"run": 3, "skipped": 1},
        "adopted": 2,
    }
    assert caplog.messages == [
        "after the gap: 4 late, by up to 2h (3 mail.send, 1 orders.rate); why: 2 nobody, "
        "1 taken-over; 3 run, 1 skipped; the scan adopted 2"
    ]


@pytest.mark.parametrize("caught_up", [NOTHING, started(0.5)])
def test_it_waits_for_the_scan_and_until_the_late_ones_are_behind(
    caplog: pytest.LogCaptureFixture, caught_up: Event
) -> None:
    assert told(caplog, GAP, caught_up, started(30), caught_up) == []
    assert told(caplog, GAP, started(30), DONE, started(30)) == []
    [fields] = told(caplog, GAP, started(30), DONE, started(30), caught_up)
    assert fields["count"] == 2


def test_each_gap_has_its_own_report_even_if_nothing_was_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports = told(caplog, GAP, started(9), DONE, NOTHING, GAP, DONE, NOTHING)
    assert [fields["count"] for fields in reports] == [1, 0]
    assert "nothing was late" in caplog.messages[1]


def test_what_was_late_long_before_a_gap_is_not_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load makes tasks late as well; a gap may be noticed a moment after what it made late."""
    monkeypatch.setattr(roles, "FORGET", 0.0)
    [fields] = told(caplog, started(9), NOTHING, GAP, DONE, NOTHING)
    assert fields["count"] == 0
    # A listener that was idle meanwhile has had no reason to forget it.
    caplog.clear()
    [fields] = told(caplog, started(9), GAP, DONE, NOTHING)
    assert fields["count"] == 0


@pytest.mark.parametrize(
    ("events", "levels"),
    [
        ([DONE, NOTHING], [logging.DEBUG]),
        ([DONE, NOTHING, GAP, DONE, NOTHING], [logging.DEBUG, logging.INFO]),
        ([Scanned(adopted=1), NOTHING], [logging.INFO]),
        ([started(9), DONE, NOTHING], [logging.INFO]),
    ],
)
def test_a_start_at_which_nothing_was_found_is_no_news(
    caplog: pytest.LogCaptureFixture, events: list[Event], levels: list[int]
) -> None:
    told(caplog, GAP, *events)
    assert [record.levelno for record in caplog.records] == levels


async def rings(*events: Event) -> list[bool]:
    """Whether the report rang at each of these events."""
    wakeup, rung = Wakeup(), []
    report = LateReport()
    report.wake_at(wakeup)
    for event in events:
        report.hear(event)
        try:
            async with asyncio.timeout(0.01):
                await wakeup.wait()
            rung.append(True)
        except TimeoutError:
            rung.append(False)
    return rung


async def test_it_rings_for_the_look_that_says_whether_more_is_late() -> None:
    assert await rings(GAP, started(9), DONE, started(9), NOTHING) == [
        False, False, True, True, False,
    ]  # fmt: skip


async def test_it_does_not_ring_when_there_is_nothing_to_report() -> None:
    assert not any(await rings(DONE, started(9), NOTHING, GAP))
    assert await rings(GAP, DONE, NOTHING, DONE, started(9)) == [False, True, False, False, False]
