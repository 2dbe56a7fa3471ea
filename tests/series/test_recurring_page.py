"""docs/how-to/recurring-tasks.md and docs/reference/series.md: what they show is what happens."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from expirebridge.handlers import Registry
from expirebridge.series.cron import Cron
from expirebridge.task.task import from_ms, to_ms
from tests.kit.modules import forgotten, put

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "recurring-tasks.md").read_text(encoding="utf-8")
RULES = (DOCS / "reference" / "series.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `(.+?)` \| (\w+/\w+) \| (\d{4}-\d\d-\d\d) \| (.+?) \|$", RULES, re.MULTILINE
)


def test_its_handlers_declare_what_it_says(tmp_path: Path) -> None:
    [source] = re.findall(r"```python\n# tasks/reports\.py\n(.*?)```", PAGE, re.DOTALL)
    folder = tmp_path / "tasks_of_the_page"
    put(folder, "reports.py", source)
    with forgotten(tmp_path):
        series = Registry.load(folder).series
    assert [(one.id, one.func, str(one.schedule)) for one in series] == [
        ("nightly-report", "reports.nightly", "30 2 * * * Europe/Berlin"),
        ("poll-orders", "reports.poll", "every 15m"),
        ("poll-refunds", "reports.poll", "0 * * * * UTC"),
    ]


def test_its_table_of_changes_is_read() -> None:
    assert len(ROWS) == 10


@pytest.mark.parametrize(("expression", "zone", "day", "shown"), ROWS)
def test_the_ticks_of_a_day_are_those_it_shows(
    expression: str, zone: str, day: str, shown: str
) -> None:
    expected = shown.removesuffix(", ...").split(", ")
    found = ticks_on(expression, ZoneInfo(zone), day)
    assert found[: len(expected)] == expected
    assert (len(found) > len(expected)) == shown.endswith("...")


def ticks_on(expression: str, zone: ZoneInfo, day: str) -> list[str]:
    schedule = Cron.parse(expression, zone.key)
    found: list[str] = []
    tick = to_ms(datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1))
    while True:
        after = schedule.next_after(tick)
        assert after is not None
        local = from_ms(after).astimezone(zone)
        if local.date().isoformat() > day:
            return found
        if local.date().isoformat() == day:
            found.append(local.isoformat()[11:16] + local.isoformat()[19:])
        tick = after
