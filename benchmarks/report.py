"""Writes the pages about the results: in benchmarks/pages, and the tables of docs/reference.

    python -m benchmarks.report [--results FILE] [--to FOLDER]

The prose is in pages/performance.template.md. Every figure comes from the file of results, except
those of the goals, before and after, which have the commit that they are of. A line `{{name}}`
there is replaced by what the function of that name returns here, and by a line that says where and
when it was measured.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import shown
from benchmarks.lab.records import Records, Row
from benchmarks.ledger_sections import SECTIONS
from benchmarks.shown import Column, duration, megabytes, number, percent, table

HERE = Path(__file__).parent
PAGES = HERE / "pages"
TEMPLATE = PAGES / "performance.template.md"
BLANK = re.compile(r"^\{\{(\w+)\}\}$", re.M)
_OURS = "expirebridge"


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    parser.add_argument("--to", type=Path, default=PAGES)
    options = parser.parse_args()
    records = Records(json.loads(options.results.read_text(encoding="utf-8")))
    if together := records.measured_together():
        parser.error(f"measured at the same time, so not alone: {together}")
    folder = options.to / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    # matplotlib is an extra; the other pages use what is here.
    from benchmarks import designs_page, plots, summary  # noqa: PLC0415

    designs_page.write(records, options.to)
    if options.to == PAGES:
        summary.write(records)
    records = records.of_kinds("ours", "limit", "baseline", "peer")
    plots.draw(records, folder)
    text = BLANK.sub(lambda blank: section(blank[1], records), TEMPLATE.read_text("utf-8"))
    (options.to / "performance.md").write_text(text, encoding="utf-8")


def section(name: str, records: Records) -> str:
    """What stands in a blank of the page, and where it was measured."""
    if name in OF_ALL_MEASUREMENTS:
        return BLANKS[name](records)
    records = records.of(name)
    if name in OURS_ALONE:
        records = records.of_kinds("ours")
    if name not in OF_ALL_SERVERS:
        records = records.of_first_server()
    if not records.records:
        return shown.not_measured(name)
    return f"{BLANKS[name](records)}\n\n{shown.measured(records)}"


# What stands in the blanks.


def contenders(records: Records) -> str:
    """Who was measured, with versions and settings."""
    rows = []
    for name, about in records.contenders.items():
        version = next(
            (v for package, v in about["versions"].items() if package.lower() in _packages(name)),
            "",
        )
        links = " ".join(f"[docs]({_link(link)})" for link in about["documentation"])
        rows.append([f"{about['title']} {version}".strip(), about["concurrency"],
                     shown.settings(about), links])  # fmt: skip
    lines = [["", "at a time", "settings", ""], ["---"] * 4, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _link(page: str) -> str:
    """A link from the pages to an address, or to a file of the repository."""
    return page if page.startswith("http") else f"../../{page}"


def _packages(name: str) -> set[str]:
    return {name, f"py{name}", f"{name}-server-bin", name.partition("_")[0]}


def lateness(records: Records) -> str:
    """Lateness with nothing else pending."""
    return _lateness(records.rows("lateness"))


def lateness_pending(records: Records) -> str:
    """Lateness and the worker's memory, by how many others are pending."""
    parts = []
    for pending in records.variants("lateness_pending", "pending"):
        rows = records.rows("lateness_pending", pending=pending)
        restless = [row.title for row in rows if row.measured and not row.last("at_rest")]
        parts.append(f"With {pending:,} others:\n\n{_lateness(rows, worker=True)}")
        if restless:
            parts.append(f"Still at work on the others when these began: {', '.join(restless)}.")
    return "\n\n".join(parts)


def _lateness(rows: Sequence[Row], *, worker: bool = False) -> str:
    columns: list[Column] = [
        ("p50", lambda row: duration(row.percentile("50"))),
        ("p99", lambda row: duration(row.percentile("99"))),
        ("max", lambda row: duration(row.percentile("100"))),
        ("ran", lambda row: f"{row.total('ran'):,} of {row.total('asked'):,}"),
        ("twice", shown.count("twice")),
        ("early", shown.count("early")),
        ("rounds", shown.rounds),
    ]
    if worker:
        columns.append(("worker's memory", shown.figure("worker_bytes", megabytes)))
        columns.append(
            ("without them", shown.figure("worker_bytes_before", megabytes)),
        )
    return shown.rows(rows, columns)


def schedule_rate(records: Records) -> str:
    """Tasks made in a second."""
    return shown.rows(
        records.rows("schedule_rate"),
        [
            ("one call each", shown.figure("single_per_second", number)),
            ("in bulk", shown.figure("bulk_per_second", number)),
            ("rounds", shown.rounds),
        ],
    )


def burst(records: Records) -> str:
    """Tasks that were all due at one instant."""
    parts = []
    for tasks in records.variants("burst", "tasks"):
        rows = [
            row.named(f"{row.title}, {handler} handler")
            for handler in ("async", "plain")
            for row in records.rows("burst", tasks=tasks, handler=handler)
        ]
        columns: list[Column] = [
            ("tasks a second", shown.figure("per_second", number)),
            ("lost", shown.count("lost")),
            ("twice", shown.count("twice")),
            ("server, CPU s", shown.figure("server_cpu_seconds", number)),
            ("worker, CPU s", shown.figure("worker_cpu_seconds", number)),
            ("rounds", shown.rounds),
        ]
        parts.append(f"{tasks:,} tasks:\n\n{shown.rows(rows, columns)}")
    return "\n\n".join(parts)


def cores(records: Records) -> str:
    """Tasks that take time, in threads, in processes and on event loops."""
    parts = []
    for kind, words in WORK.items():
        rows = [row.named(_title_of(row)) for row in records.rows("cores", kind=kind)]
        columns: list[Column] = [
            ("tasks a second", shown.figure("per_second", number)),
            ("lost", shown.count("lost")),
            ("twice", shown.count("twice")),
            ("server, CPU s", shown.figure("server_cpu_seconds", number)),
            ("worker, CPU s", shown.figure("worker_cpu_seconds", number)),
            ("rounds", shown.rounds),
        ]
        if rows:
            parts.append(f"{words}:\n\n{shown.rows(rows, columns)}")
    return "\n\n".join(parts)


WORK = {
    "computing": "50 ms of computing in each task, in pure Python",
    "blocking": "50 ms of `time.sleep` in each task",
    "waiting": "50 ms of `asyncio.sleep` in each task",
}
PLACES = {"async": "on the event loop", "plain": "in threads", "process": "in processes"}


def _title_of(row: Row) -> str:
    """A contender, and how it ran the tasks if that is not its default."""
    if "workers" not in row.variant:
        return f"{row.title}, its defaults"
    workers = "one worker" if row.variant["workers"] == 1 else f"{row.variant['workers']} workers"
    return f"{row.title}, {PLACES[row.variant['handler']]}, {workers}"


def memory(records: Records) -> str:
    """The server's memory."""
    columns: list[Column] = [("bytes per pending task", shown.figure("bytes_per_task", number))]
    return shown.rows(records.rows("memory"), columns)


def crash(records: Records) -> str:
    """What became of tasks."""
    return shown.rows(
        records.rows("crash"),
        [
            ("tasks", shown.count("asked")),
            ("running when killed", shown.count("interrupted")),
            ("lost", shown.count("lost")),
            ("twice", shown.count("twice")),
            ("last one back after", lambda row: duration(row.median("recovery_seconds") * 1000)),
            ("waited", _waited),
        ],
    )


def _waited(row: Row) -> str:
    waited, taken_over = row.variant["patience"], row.variant["redelivery"]
    return f"{waited:.0f} s" + (f" of {taken_over:.0f} s" if taken_over > waited else "")


def listeners(records: Records) -> str:
    """One listener, and several."""
    rows = [
        row.named(f"{count}")
        for count in records.variants("listeners", "listeners")
        for row in records.rows("listeners", listeners=count)
    ]
    return shown.rows(
        rows,
        [
            ("tasks a second", shown.figure("per_second", number)),
            ("twice", shown.count("twice")),
            ("lost", shown.count("lost")),
            ("server, CPU s", shown.figure("server_cpu_seconds", number)),
            ("listeners, CPU s", shown.figure("worker_cpu_seconds", number)),
            ("claims", shown.figure("claims", number)),
            ("empty", shown.figure("empty_claims", number)),
            ("over s", shown.figure("claims_seconds", number)),
            ("shares", lambda row: " ".join(percent(share) for share in row.last("shares"))),
            ("p50", lambda row: duration(row.percentile("50"))),
            ("p99", lambda row: duration(row.percentile("99"))),
        ],
    )


def idle(records: Records) -> str:
    """What waiting costs."""
    columns: list[Column] = [
        ("pending", lambda row: f"{row.variant['pending']:,}"),
        ("commands a second", shown.figure("commands_per_second", number)),
        ("server, of a core", shown.figure("server_cores", percent)),
        ("listener, of a core", shown.figure("listener_cores", percent)),
        ("server's memory", shown.figure("server_bytes", megabytes)),
        ("listener's memory", shown.figure("listener_bytes", megabytes)),
    ]
    return shown.rows(records.rows("idle"), columns)


def keepalive(records: Records) -> str:
    """Timers that are put off."""
    columns: list[Column] = [
        ("timers", lambda row: f"{row.variant['timers']:,}"),
        ("EXPIRE a second", lambda row: f"{row.variant['per_second']:,}"),
        ("false firings", shown.count("false_firings")),
        ("let go", shown.count("let_go")),
        ("p50", lambda row: duration(row.percentile("50"))),
        ("p99", lambda row: duration(row.percentile("99"))),
        ("max", lambda row: duration(row.percentile("100"))),
        ("server, of a core", shown.figure("server_cores", percent)),
        ("listener, of a core", shown.figure("listener_cores", percent)),
    ]
    return shown.rows(records.rows("keepalive"), columns)


def recurring(records: Records) -> str:
    """Ticks of each minute, with one scheduler, with two, and when all is killed."""
    parts = []
    for schedulers, killed, words in (
        (1, False, "Once"), (2, False, "Twice"), (1, True, "Killed"),
    ):  # fmt: skip
        rows = records.rows("recurring", schedulers=schedulers, killed=killed)
        columns: list[Column] = [
            ("ticks", shown.count("asked")),
            ("missed", shown.count("missed")),
            ("twice", shown.count("twice")),
            ("p50", lambda row: duration(row.percentile("50"))),
            ("p99", lambda row: duration(row.percentile("99"))),
            ("max", lambda row: duration(row.percentile("100"))),
        ]
        if rows:
            parts.append(f"{words}:\n\n{shown.rows(rows, columns)}")
    return "\n\n".join(parts)


def series(records: Records) -> str:
    """Many series, and the tasks beside them."""
    lines = []
    for row in records.rows("series"):
        count = row.variant["series"] + row.variant["others"]
        for words, figures in (
            ("without", [one["alone"] for one in row.rounds]), (f"{count:,} series", row.rounds),
        ):  # fmt: skip
            part = Row(row.title, row.kind, row.variant, figures, row.errors)
            if not part.measured:
                continue
            lines.append([
                words, *(duration(part.percentile(p)) for p in ("50", "99", "100")),
                number(part.median("server_cpu_seconds")),
                number(part.median("listener_cpu_seconds")),
                duration(part.median("loop_lag_ms")),
                *((f"{part.total('ticks'):,}", f"{part.total('ticks_twice'):,}",
                   number(part.median("made_per_second")), number(part.median("bytes_per_series")))
                  if part.has("ticks") else ["-"] * 4),
            ])  # fmt: skip
    return table(
        ["", "p50", "p99", "max", "server, CPU s", "listener, CPU s", "loop late by", "ticks",
         "twice", "made a second", "bytes each"], lines,
    )  # fmt: skip


def scripts(records: Records) -> str:
    """The scripts' times."""
    rows = []
    for row in records.rows("scripts"):
        if not row.measured:
            continue
        for name, times in row.last("scripts").items():
            rows.append([f"`{name}`", f"{times['calls']:,}",
                         *(duration(times[p] / 1000) for p in ("50", "99", "100"))])  # fmt: skip
    return table(["script", "calls", "p50", "p99", "max"], rows)


def ahead(records: Records) -> str:
    """Who is better than ours in what, by how much."""

    def rows_of(measurement: str, **wanted: Any) -> list[Row]:
        return records.of(measurement).of_first_server().rows(measurement, **wanted)

    made, alone = rows_of("schedule_rate"), rows_of("lateness")
    pending = [*records.of("lateness_pending").variants("lateness_pending", "pending"), 0][0]
    among = rows_of("lateness_pending", pending=pending)
    lines = []
    for words, better, rows in (
        ("makes more tasks a second, one call each", "single_per_second", made),
        ("makes more tasks a second, in bulk", "bulk_per_second", made),
        ("takes less of the server's memory", "bytes_per_task", rows_of("memory")),
        (f"needs less memory for its worker, with {pending:,} pending", "worker_bytes", among),
        ("runs more tasks a second of a burst, async", "per_second",
         rows_of("burst", handler="async")),
        ("runs more tasks a second of a burst, plain", "per_second",
         rows_of("burst", handler="plain")),
        ("is less late at p50, nothing else pending", "50", alone),
        ("is less late at p99, nothing else pending", "99", alone),
        ("is less late at worst, nothing else pending", "100", alone),
        (f"is less late at p50, among {pending:,}", "50", among),
        (f"is less late at p99, among {pending:,}", "99", among),
        (f"is less late at worst, among {pending:,}", "100", among),
    ):  # fmt: skip
        lines += _ahead(words, better, rows)
    return "\n".join(lines) or "In nothing that is measured here."


def _ahead(words: str, name: str, rows: Sequence[Row]) -> list[str]:
    more_is_better = name.endswith("per_second")
    values: dict[str, float] = {}
    for row in rows:
        if row.measured and row.kind in {"ours", "peer"} and row.has(name):
            value = row.percentile(name) if name.isdigit() else row.median(name)
            # Ours has two sizes of burst; the peers' is the first.
            values.setdefault(row.title, value)
    if _OURS not in values:
        return []
    ours = values.pop(_OURS)
    found = [
        f"{title} ({number(value / ours if more_is_better else ours / max(value, 1e-9))} times)"
        for title, value in sorted(values.items(), key=lambda item: item[1], reverse=more_is_better)
        if (value > ours if more_is_better else value < ours)
    ]
    return [f"- {words}: {', '.join(found)}"] if found else []


BLANKS: dict[str, Callable[[Records], str]] = {
    function.__name__: function
    for function in (contenders, lateness, lateness_pending, schedule_rate, burst, memory, crash,
                     recurring, cores, listeners, idle, keepalive, series, scripts, ahead,
                     *SECTIONS)
}  # fmt: skip
OF_ALL_MEASUREMENTS = {"contenders", "ahead", "ledger_contenders"}
"""What is not a table of one measurement."""
OF_ALL_SERVERS = {"memory", "schedule_rate", "lateness", "lateness_pending", "burst", "crash"}
"""Where each server is shown; elsewhere it is the first."""
OURS_ALONE = {"idle", "keepalive"}
"""Where the page shows no others."""


if __name__ == "__main__":
    main()
