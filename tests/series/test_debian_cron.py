"""Changes of the clock, with Debian's own cron as the oracle for ticks, and for its model."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from expirebridge.series.cron import Cron
from tests.kit.cron_model import cron_runs
from tests.kit.debian_cron import debian_runs, missing

MISSING = missing()
EXPRESSIONS = [
    "30 2 * * *",
    "0,30 2 * * *",
    "0 2,3 * * *",
    "45 1 * * *",
    "0 0 * * *",
    "10-50/20 0-3,23 * * *",
    "0 * * * *",
    "15,45 * * * *",
    "*/30 */2 * * *",
    "*/20 2 * * *",
    "*/20 0-2,23 * * *",
    "40 1 */2 * SUN",
    "50 1,2 1-9 * 5-7",
]


class Change(NamedTuple):
    """A change of the clock, and the minutes around it."""

    name: str
    zone: str
    start: str
    minutes: int


CHANGES = [
    Change("Berlin, spring", "Europe/Berlin", "2026-03-29T01:50+01:00", 45),
    Change("Berlin, autumn", "Europe/Berlin", "2026-10-25T01:55+02:00", 132),
    Change("New York, spring", "America/New_York", "2026-03-08T01:50-05:00", 45),
    Change("New York, autumn", "America/New_York", "2026-11-01T00:55-04:00", 132),
    Change("Lord Howe, spring", "Australia/Lord_Howe", "2026-10-04T01:40+10:30", 45),
    Change("Lord Howe, autumn", "Australia/Lord_Howe", "2026-04-05T01:25+11:00", 80),
    Change("Sao Paulo, spring", "America/Sao_Paulo", "2018-11-03T23:50-03:00", 45),
    Change("Sao Paulo, autumn", "America/Sao_Paulo", "2019-02-16T22:55-02:00", 132),
]


@pytest.mark.rest
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_ticks_are_when_cron_runs(tmp_path: Path) -> None:
    def run(change: Change) -> dict[str, list[int]]:
        folder = tmp_path / change.start
        folder.mkdir()
        begins = datetime.fromisoformat(change.start)
        return debian_runs(folder, EXPRESSIONS, change.zone, begins, change.minutes)

    # All at once: each spends most of its time waiting until processes have started and ended.
    with ThreadPoolExecutor(len(CHANGES)) as crons:
        for change, runs in zip(CHANGES, crons.map(run, CHANGES), strict=True):
            compare(change, runs)


def compare(change: Change, runs: dict[str, list[int]]) -> None:
    """Assert that cron's runs are our ticks, and what its model says."""
    first = int(datetime.fromisoformat(change.start).timestamp()) // 60
    last = first + change.minutes - 1
    assert any(runs.values())
    for expression, seen in runs.items():
        # cron starts a job twice in one minute if it has two times in a gap.
        once = list(dict.fromkeys(seen))
        assert ticks(expression, change.zone, first, last) == once, (change.name, expression)
        modelled = cron_runs(expression, ZoneInfo(change.zone), first, last)
        assert modelled == once, (change.name, expression)


def ticks(expression: str, zone: str, first: int, last: int) -> list[int]:
    """The ticks from one minute since 1970 to another."""
    schedule, found = Cron.parse(expression, zone), []
    tick = schedule.next_after(first * 60_000 - 1)
    while tick is not None and tick <= last * 60_000:
        found.append(tick // 60_000)
        tick = schedule.next_after(tick)
    return found
