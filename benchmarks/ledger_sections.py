"""What stands in the blanks of the page about the ledger: tasks in a transaction, or after it."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks import shown
from benchmarks.lab.records import Records, Row
from benchmarks.shown import Column, duration, number, percent, table

DATABASES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB", "sqlite": "SQLite"}


def inserts(records: Records) -> str:
    """What a task adds to a transaction."""
    rows = [
        row.named(f"{row.title}, {DATABASES[row.variant['database']]}")
        for row in records.rows("inserts")
    ]
    columns: list[Column] = [
        ("a row alone", lambda row: f"{number(_way(row, 'row', 'per_second'))}/s"),
        ("with a task", lambda row: f"{number(_way(row, 'row_and_task', 'per_second'))}/s"),
        ("a second row adds", lambda row: added(row, "two_rows")),
        ("a task adds", lambda row: added(row, "row_and_task")),
        ("each of 100 adds", lambda row: added(row, "row_and_100_tasks", 100)),
        ("producer's CPU, a second row", lambda row: added(row, "two_rows", of="cpu_ms")),
        ("a task", lambda row: added(row, "row_and_task", of="cpu_ms")),
        ("each of 100", lambda row: added(row, "row_and_100_tasks", 100, of="cpu_ms")),
    ]
    return shown.rows(rows, columns)


def _way(row: Row, way: str, name: str) -> float:
    return float(median(record[way][name] for record in row.rounds))


def added(row: Row, way: str, count: int = 1, *, of: str = "ms") -> str:
    """What a way of a transaction takes beyond one row."""
    return f"{(_way(row, way, of) - _way(row, 'row', of)) / count:.2f} ms"


def commit_lag(records: Records) -> str:
    """From the commit to the handler, and back to the row."""
    columns: list[Column] = [
        ("begins, p50", _spread("begin_ms", "50")),
        ("p99", _spread("begin_ms", "99")),
        ("max", _spread("begin_ms", "100")),
        ("in Redis, p50", _spread("server_ms", "50")),
        ("p99", _spread("server_ms", "99")),
        ("row knows, p50", _spread("row_ms", "50")),
        ("p99", _spread("row_ms", "99")),
        ("lost", shown.count("lost")),
        ("twice", shown.count("twice")),
        ("rounds", shown.rounds),
    ]
    return shown.rows([row.named(_named(row)) for row in records.rows("commit_lag")], columns)


def _named(row: Row) -> str:
    partitions = row.variant.get("partitions", 1)
    words = [row.title, *([f"{partitions} partitions"] if partitions > 1 else [])]
    return ", ".join([*words, *([] if row.variant.get("poked", True) else ["no notification"])])


def _spread(name: str, percent: str) -> Callable[[Row], str]:
    return lambda row: duration(row.spread(name, percent)) if row.has(name) else "-"


def commit_crash(records: Records) -> str:
    """What a killed producer leaves behind."""
    rows = [
        row.named(f"{row.title}, killed {row.variant['killed']}")
        for row in records.rows("commit_crash")
    ]
    columns: list[Column] = [
        ("kills", shown.count("kills")),
        ("orders", shown.count("orders")),
        ("without their task", shown.count("lost")),
        ("tasks without an order", shown.count("unasked")),
        ("twice", shown.count("twice")),
    ]
    return shown.rows(rows, columns)


def ledger_pass(records: Records) -> str:
    """What it costs to carry many rows."""
    rows = []
    for row in records.rows("ledger_pass"):
        count = row.variant["rows"]
        for name, words in (("new", f"{count:,} new rows"), ("lost", "all of them once more")):
            figures = [record[name] for record in row.rounds]
            rows.append(Row(words, row.kind, row.variant, figures, row.errors))
    columns: list[Column] = [
        ("took", lambda row: duration(row.median("seconds") * 1000)),
        ("rows a second", shown.figure("per_second", number)),
        ("of 1,000 rows: database's CPU", shown.figure("database_ms", duration)),
        ("Redis's", shown.figure("server_ms", duration)),
        ("listener's", shown.figure("listener_ms", duration)),
        ("statements a row", shown.figure("statements", number)),
        ("bytes logged a row", shown.figure("bytes_written", number)),
        ("other tasks, p50", lambda row: duration(row.percentile("50"))),
        ("p99", lambda row: duration(row.percentile("99"))),
    ]
    return shown.rows(rows, columns)


def ledger_idle(records: Records) -> str:
    """What it costs to wait, with a ledger and without."""
    columns: list[Column] = [
        ("statements a second", shown.figure("statements_per_second", number)),
        ("database, of a core", shown.figure("database_cores", percent)),
        ("Redis commands a second", shown.figure("commands_per_second", number)),
        ("Redis, of a core", shown.figure("server_cores", percent)),
        ("worker, of a core", shown.figure("worker_cores", percent)),
    ]
    return shown.rows([row.named(_named(row)) for row in records.rows("ledger_idle")], columns)


def unledgered(records: Records) -> str:
    """Tasks without a row: each code, and the present one beside the others of the same turn."""
    rows = {row.variant["code"]: row for row in records.rows("unledgered")}
    columns: list[Column] = [
        ("bytes", shown.figure("bytes_per_task", number)),
        ("scripts", shown.figure("script_us_per_task", _microseconds)),
        ("server's CPU", shown.figure("server_us_per_task", _microseconds)),
        ("listener's CPU", shown.figure("worker_us_per_task", _microseconds)),
        ("tasks a second", shown.figure("per_second", number)),
        ("p50", lambda row: duration(row.percentile("50"))),
        ("p99", lambda row: duration(row.percentile("99"))),
        ("turns", shown.rounds),
    ]
    figures = shown.rows([row.named(code) for code, row in rows.items()], columns)
    present = rows.get("present")
    if present is None or not present.measured:
        return figures
    lines = [
        [f"present / {code}", *(_ratio(present, row, name) for name in _COMPARED)]
        for code, row in rows.items()
        if code != "present"
    ]
    head = ["", "bytes", "scripts", "server's CPU", "listener's CPU", "tasks a second"]
    return f"{figures}\n\n{table(head, lines)}"


_COMPARED = (
    "bytes_per_task", "script_us_per_task", "server_us_per_task", "worker_us_per_task",
    "per_second",
)  # fmt: skip


def _microseconds(value: float) -> str:
    return f"{value:.1f} µs"


def _ratio(present: Row, other: Row, name: str) -> str:
    """The median of the ratios of each turn."""
    before = {record["round"]: record[name] for record in other.rounds}
    ratios = [
        record[name] / before[record["round"]]
        for record in present.rounds
        if record["round"] in before
    ]
    return f"{median(ratios):.3f}" if ratios else "-"


def ledger_contenders(records: Records) -> str:
    """Who takes part, and how each is set up."""
    took_part: set[str] = {
        record["contender"]
        for record in records.records
        if record["measurement"] in {"inserts", "commit_lag", "commit_crash"}
    }
    rows: list[Sequence[Any]] = [
        [f"[{about['title']}](../contenders/{name}.py)", about["settings"]]
        for name, about in records.contenders.items()
        if name in took_part
    ]
    return table(["", "settings"], rows)


SECTIONS = (
    inserts, commit_lag, commit_crash, ledger_pass, ledger_idle, unledgered, ledger_contenders,
)  # fmt: skip
