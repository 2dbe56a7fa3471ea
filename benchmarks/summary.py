"""Writes the tables of docs/reference/performance.md from the results; called by benchmarks.report.

Each table of that page which is of figures has a comment before it that names the function here.
"""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.lab.contender import REPOSITORY
from benchmarks.lab.records import Records, Row
from benchmarks.shown import duration, number, table

PAGE = REPOSITORY / "docs" / "reference" / "performance.md"
_TABLE = re.compile(r"^(<!-- (\w+): .*-->\n)(?:\|.*\n)*", re.MULTILINE)


def write(records: Records, page: Path = PAGE) -> None:
    """Put the tables into the page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(filled(text, records), encoding="utf-8")


def filled(text: str, records: Records) -> str:
    """Return the text of the page with the tables of these results."""
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]](records)}\n", text)


def libraries(records: Records) -> str:
    """Every library, in a line."""
    records = records.of_kinds("ours", "peer")
    late, made, memory, crash = (
        _first(records, name) for name in ("lateness_pending", "schedule_rate", "memory", "crash")
    )
    run = _first(records, "burst", handler="plain") | _first(records, "burst", handler="async")
    lines = [
        [
            title,
            _cell(late, title, lambda row: duration(row.percentile("50"))),
            _cell(late, title, lambda row: duration(row.percentile("99"))),
            _cell(made, title, lambda row: number(row.median("single_per_second"))),
            _cell(run, title, lambda row: number(row.median("per_second"))),
            _cell(memory, title, lambda row: number(row.median("bytes_per_task"))),
            _cell(crash, title, lambda row: f"{row.total('lost'):,}"),
            _cell(crash, title, lambda row: f"{row.total('twice'):,}"),
        ]
        for title in made
    ]
    return table(["", "p50", "p99", "made/s", "run/s", "bytes", "lost", "twice"], lines)


def _first(records: Records, measurement: str, **wanted: object) -> dict[str, Row]:
    """The first variant of each contender."""
    found: dict[str, Row] = {}
    for row in records.of(measurement).of_first_server().rows(measurement, **wanted):
        found.setdefault(row.title, row)
    return found


def _cell(rows: dict[str, Row], title: str, show: Callable[[Row], str]) -> str:
    row = rows.get(title)
    return show(row) if row and row.measured else "-"


TABLES: dict[str, Callable[[Records], str]] = {"libraries": libraries}
