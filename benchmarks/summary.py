"""Writes the tables of docs/reference/performance.md from the results; called by benchmarks.report.

Each table of that page which is of figures has a comment before it that names the function here.
"""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.lab.contender import REPOSITORY
from benchmarks.lab.records import Records, Row
from benchmarks.ledger_sections import added
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


def cores(records: Records) -> str:
    """What more processes bring, for each kind of work."""
    records = records.of("cores").of_first_server()
    lines = []
    for kind, words in WORK.items():
        found = {_runs(row): row for row in records.rows("cores", kind=kind)}
        cells = [_cell(found, way, lambda row: number(row.median("per_second"))) for way in WAYS]
        lines.append([words, *cells])
    return table(["", *WAYS], lines)


WORK = {"computing": "Python", "blocking": "`time.sleep`", "waiting": "`asyncio.sleep`"}
WAYS = ("one listener", "two listeners", "one, `process=True`", "Celery (prefork)", "Dramatiq")


def _runs(row: Row) -> str:
    if "workers" not in row.variant:
        return row.title
    one = row.variant["workers"] == 1
    if row.variant["handler"] == "process":
        return "one, `process=True`" if one else "two, `process=True`"
    return "one listener" if one else "two listeners"


def transactions(records: Records) -> str:
    """Tasks that belong to a transaction, or come after it."""
    adds, begins, crash = (
        _first(records, name, **wanted)
        for name, wanted in (
            ("inserts", {"database": "postgresql"}),
            ("commit_lag", {}),
            ("commit_crash", {"killed": "anywhere"}),
        )
    )
    lines = [
        [
            title,
            _cell(adds, title, lambda row: added(row, "row_and_task")),
            _cell(begins, title, lambda row: duration(row.spread("begin_ms", "50"))),
            _cell(crash, title, lambda row: f"{row.total('lost'):,} of {row.total('orders'):,}"),
        ]
        for title in adds
    ]
    return table(["", "a task adds", "begins after, p50", "without their task"], lines)


def _first(records: Records, measurement: str, **wanted: object) -> dict[str, Row]:
    """The first variant of each contender."""
    found: dict[str, Row] = {}
    for row in records.of(measurement).of_first_server().rows(measurement, **wanted):
        found.setdefault(row.title, row)
    return found


def _cell(rows: dict[str, Row], title: str, show: Callable[[Row], str]) -> str:
    row = rows.get(title)
    return show(row) if row and row.measured else "-"


TABLES: dict[str, Callable[[Records], str]] = {
    function.__name__: function for function in (libraries, cores, transactions)
}
