"""Changes of the clock, with Debian's own cron as the oracle for ticks, and for its model."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from expirebridge.policy.cron import Cron
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
CHANGES = [
    pytest.param("Europe/Berlin", "2026-03-29T01:50+01:00", 45, id="Berlin, spring"),
    pytest.param("Europe/Berlin", "2026-10-25T01:55+02:00", 132, id="Berlin, autumn"),
    pytest.param("America/New_York", "2026-03-08T01:50-05:00", 45, id="New York, spring"),
    pytest.param("America/New_York", "2026-11-01T00:55-04:00", 132, id="New York, autumn"),
    pytest.param("Australia/Lord_Howe", "2026-10-04T01:40+10:30", 45, id="Lord Howe, spring"),
    pytest.param("Australia/Lord_Howe", "2026-04-05T01:25+11:00", 80, id="Lord Howe, autumn"),
    pytest.param("America/Sao_Paulo", "2018-11-03T23:50-03:00", 45, id="Sao Paulo, spring"),
    pytest.param("America/Sao_Paulo", "2019-02-16T22:55-02:00", 132, id="Sao Paulo, autumn"),
]


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize(("zone", "start", "minutes"), CHANGES)
def test_ticks_are_when_cron_runs(zone: str, start: str, minutes: int, tmp_path: Path) -> None:
    begins = datetime.fromisoformat(start)
    runs = debian_runs(tmp_path, EXPRESSIONS, zone, begins, minutes)
    first = int(begins.timestamp()) // 60
    last = first + minutes - 1
    assert any(runs.values())
    for expression, seen in runs.items():
        # cron starts a job twice in one minute if it has two times in a gap.
        once = list(dict.fromkeys(seen))
        assert ticks(expression, zone, first, last) == once, expression
        assert cron_runs(expression, ZoneInfo(zone), first, last) == once, expression


def ticks(expression: str, zone: str, first: int, last: int) -> list[int]:
    """The ticks from one minute since 1970 to another."""
    schedule, found = Cron.parse(expression, zone), []
    tick = schedule.next_after(first * 60_000 - 1)
    while tick is not None and tick <= last * 60_000:
        found.append(tick // 60_000)
        tick = schedule.next_after(tick)
    return found
