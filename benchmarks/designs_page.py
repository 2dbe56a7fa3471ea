"""Writes pages/designs.md from the results of the laboratory; called by benchmarks.report.

The prose is in designs.template.md. A line `{{name}}` there is replaced by what the function of
that name returns here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import report, shown
from benchmarks.lab.records import Records, Row
from benchmarks.shown import Column, duration, megabytes, number, percent, table

TEMPLATE = report.PAGES / "designs.template.md"
KINDS = ("ours", "baseline", "design")


def write(records: Records, folder: Path) -> None:
    """Write the page."""
    records = records.of_kinds(*KINDS)
    text = report.BLANK.sub(lambda blank: section(blank[1], records), TEMPLATE.read_text("utf-8"))
    (folder / "designs.md").write_text(text, encoding="utf-8")


def section(name: str, records: Records) -> str:
    """Return the text for a blank of the page, and where it was measured."""
    function, measurements = BLANKS[name]
    if not measurements:
        return function(records)
    parts = [records.of(measurement).of_first_server() for measurement in measurements]
    for measurement, part in zip(measurements, parts, strict=True):
        if not part.records:
            return shown.not_measured(measurement)
    together = [record for part in parts for record in part.records]
    all_parts = Records({"contenders": records.contenders, "records": together})
    return f"{function(all_parts)}\n\n{shown.measured(*parts)}"


def lateness(records: Records) -> str:
    """Lateness, by how many others are pending."""
    parts = [f"Nothing else pending:\n\n{report.lateness(records)}"]
    for pending in records.variants("lateness_pending", "pending"):
        rows = records.rows("lateness_pending", pending=pending)
        parts.append(f"{pending:,} others pending:\n\n{shown.rows(rows, _LATENESS)}")
    return "\n\n".join(parts)


_LATENESS: list[Column] = [
    ("p50", lambda row: duration(row.percentile("50"))),
    ("p99", lambda row: duration(row.percentile("99"))),
    ("max", lambda row: duration(row.percentile("100"))),
    ("lost", shown.count("lost")),
    ("twice", shown.count("twice")),
    ("early", shown.count("early")),
]


def rates(records: Records) -> str:
    """Tasks made and run in a second."""
    made = {row.title: row for row in records.rows("schedule_rate")}
    rows = records.rows("burst", tasks=records.variants("burst", "tasks")[0])
    cells = [
        [
            f"{row.title}, {row.variant['handler']} handler",
            _cell(made.get(row.title), "single_per_second", number),
            _cell(made.get(row.title), "bulk_per_second", number),
            _cell(row, "per_second", number),
            f"{_cpu(row):,.0f} µs",
        ]
        for row in rows
        if row.measured
    ]
    return table(["", "made, one call each", "made, in bulk", "run", "CPU"], cells)


def _cpu(row: Row) -> float:
    used = row.median("server_cpu_seconds") + row.median("worker_cpu_seconds")
    return used / row.median("ran") * 1e6


def _cell(row: Row | None, name: str, show: Callable[[float], str]) -> str:
    return show(row.median(name)) if row and row.has(name) else "-"


def size(records: Records) -> str:
    """Bytes of a pending task, wherever they are."""
    pending = records.variants("lateness_pending", "pending")[0]
    grown = {row.title: row for row in records.rows("lateness_pending", pending=pending)}
    stored = {row.title: row for row in records.rows("memory")}
    titles = dict.fromkeys([*stored, *grown])
    cells = [
        [
            title,
            _cell(stored.get(title), "bytes_per_task", number),
            _growth(grown.get(title)),
            _cell(stored.get(title), "disk_bytes_per_task", number),
        ]
        for title in titles
    ]
    return table(["", "server", "worker", "disk"], cells)


def _growth(row: Row | None) -> str:
    if row is None or not row.measured:
        return "-"
    grown = row.median("worker_bytes") - row.median("worker_bytes_before")
    return number(max(grown, 0) / row.variant["pending"])


def waiting(records: Records) -> str:
    """What it costs to wait."""
    columns: list[Column] = [
        ("pending", lambda row: f"{row.variant['pending']:,}"),
        ("server, of a core", shown.figure("server_cores", percent)),
        ("worker, of a core", shown.figure("listener_cores", percent)),
        ("commands a second", shown.figure("commands_per_second", number)),
        ("server's memory", shown.figure("server_bytes", megabytes)),
        ("worker's memory", shown.figure("listener_bytes", megabytes)),
    ]
    return shown.rows(records.rows("idle"), columns)


def keepalives(records: Records) -> str:
    """Timers that are put off."""
    columns: list[Column] = [
        ("cost", shown.figure("microseconds", lambda value: f"{value:,.0f} µs")),
        ("false", shown.count("false_firings")),
        ("let go", shown.count("let_go")),
        ("lost", shown.count("lost")),
        ("p50", lambda row: duration(row.percentile("50"))),
        ("max", lambda row: duration(row.percentile("100"))),
    ]
    return shown.rows(records.rows("keepalive"), columns)


def restart(records: Records) -> str:
    """A server that is killed."""
    columns: list[Column] = [
        ("tasks", shown.count("asked")),
        *_LATENESS,
        ("worker restarts", shown.count("worker_restarts")),
    ]
    return shown.rows(records.rows("server_restart"), columns)


def two_workers(records: Records) -> str:
    """A second worker."""
    columns: list[Column] = [
        ("tasks", shown.count("asked")),
        *_LATENESS,
        ("workers that ran any", shown.figure("workers_that_ran_any", number)),
    ]
    return shown.rows(records.rows("two_workers"), columns)


def settings(records: Records) -> str:
    """Each program, and how it is set up."""
    shown_here = {name for _, measurements in BLANKS.values() for name in measurements}
    rows: Sequence[Sequence[str]] = [
        [f"[{about['title']}](../contenders/{name}.py)", shown.settings(about)]
        for name, about in records.contenders.items()
        if not about["only"] or shown_here & set(about["only"])
    ]
    lines = [["", "settings"], ["---", "---"], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


BLANKS: dict[str, tuple[Callable[[Records], str], Sequence[str]]] = {
    "lateness": (lateness, ["lateness", "lateness_pending"]),
    "rates": (rates, ["schedule_rate", "burst"]),
    "size": (size, ["memory", "lateness_pending"]),
    "waiting": (waiting, ["idle"]),
    "keepalives": (keepalives, ["keepalive"]),
    "killed": (report.crash, ["crash"]),
    "restart": (restart, ["server_restart"]),
    "two_workers": (two_workers, ["two_workers"]),
    "settings": (settings, []),
}
"""What fills each blank of the page, and the measurements that it is made of."""
