"""Writes performance.md, its plots and designs.md in docs/reference from the results.

    python -m benchmarks.report [--results FILE ...] [--to FOLDER]

The prose is in performance.template.md; every figure in it comes from the files of results. A line
`{{name}}` there is replaced by what the function of that name returns here, from the last file that
holds such a measurement; if that is not the first file, the page says where it was measured.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import shown
from benchmarks.lab.contender import REPOSITORY
from benchmarks.lab.records import Records, Row
from benchmarks.ledger_sections import SECTIONS
from benchmarks.shown import Column, duration, megabytes, number, percent, table

HERE = Path(__file__).parent
TEMPLATE = HERE / "performance.template.md"
_BLANK = re.compile(r"^\{\{(\w+)\}\}$", re.M)
_OURS = "expirebridge"


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("--results", type=Path, nargs="+", default=_kept())
    parser.add_argument("--to", type=Path, default=REPOSITORY / "docs" / "reference")
    options = parser.parse_args()
    files = [Records(json.loads(path.read_text(encoding="utf-8"))) for path in options.results]
    for path, records in zip(options.results, files, strict=True):
        if together := records.measured_together():
            parser.error(f"{path}: measured at the same time, so not alone: {together}")
    folder = options.to / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    # matplotlib is an extra; the other page uses what is here.
    from benchmarks import designs_page, plots  # noqa: PLC0415

    designs_page.write(last_with(files, lambda one: one.has_kind("design")), options.to)
    files = [one.of_kinds("ours", "limit", "baseline", "peer") for one in files]
    plots.draw(Records.newest(files), folder)
    text = _BLANK.sub(lambda blank: section(blank[1], files), TEMPLATE.read_text("utf-8"))
    (options.to / "performance.md").write_text(text, encoding="utf-8")


def _kept() -> list[Path]:
    """The files of results in this repository; that of the whole page is the first."""
    full = [path for path in (HERE / "results").glob("*.json") if "scale-" not in path.name]
    return sorted(full, key=lambda path: (path.stem != "run", path.name))


def last_with(files: Sequence[Records], holds: Callable[[Records], bool]) -> Records:
    """The last file of which this is true, or else the first."""
    return next(filter(holds, reversed(files)), files[0])


def section(name: str, files: Sequence[Records]) -> str:
    """What stands in a blank, and where it was measured unless that is where most was."""
    if name == "ahead":
        return fill(name, Records.newest(files))
    measured = "inserts" if name == "ledger_contenders" else name
    records = last_with(files, lambda one: one.has_measurement(measured))
    text = fill(name, records)
    if records is files[0]:
        return text
    about = records.document["machine"]
    beside = records.document.get("beside", "")
    return (
        f"{text}\n\nMeasured by itself until {records.document['date']}, on {about['cores']} cores "
        f"({about['processor']}), {about['system']}, Python {about['python']}"
        f"{beside and f', while {beside}'}."
    )


# What stands in the blanks.


def machine(records: Records) -> str:
    """The machine, the servers, and when."""
    about: dict[str, Any] = records.document["machine"]
    servers = ", ".join(records.document["servers"].values())
    scale = records.document["scale"]
    lines = [
        f"- {about['cores']} cores ({about['processor']}), {about['memory_gib']} GiB of memory, "
        f"{about['system']}, Python {about['python']}",
        f"- server: {servers}, with the repository's `redis.conf` (append-only, fsync each second)",
        f"- measured until {records.document['date']}; of several `rounds` the median is shown, "
        "the worst of all as `max`, and counts are sums",
    ]
    if scale != 1:
        lines.append(f"- **at {scale:g} of the full size: these figures mean nothing**")
    return "\n".join(lines)


def contenders(records: Records) -> str:
    """Who was measured, with versions and settings."""
    rows = []
    for name, about in records.document["contenders"].items():
        version = next(
            (v for package, v in about["versions"].items() if package.lower() in _packages(name)),
            "",
        )
        links = " ".join(
            f"[docs]({'../../' if not link.startswith('http') else ''}{link})"
            for link in about["documentation"]
        )
        rows.append([f"{about['title']} {version}".strip(), about["concurrency"],
                     about["settings"], links])  # fmt: skip
    lines = [["", "at a time", "settings", ""], ["---"] * 4, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _packages(name: str) -> set[str]:
    return {name, f"py{name}", name.partition("_")[0]}


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
    return "\n\n".join(parts) or "*Not measured.*"


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
    return "\n\n".join(parts) or "*Not measured.*"


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
    return "\n\n".join(parts) or "*Not measured.*"


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
            ("waited", lambda row: f"{row.variant['patience']:.0f} s"),
        ],
    )


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
    return "\n\n".join(parts) or "*Not measured.*"


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
    made = records.rows("schedule_rate")
    alone = records.rows("lateness")
    among = records.rows("lateness_pending", pending=records.scaled(200_000))
    lines = []
    for words, better, rows in (
        ("makes more tasks a second, one call each", "single_per_second", made),
        ("makes more tasks a second, in bulk", "bulk_per_second", made),
        ("takes less of the server's memory", "bytes_per_task", records.rows("memory")),
        ("needs less memory for its worker, with 200,000 pending", "worker_bytes", among),
        ("runs more tasks a second of a burst, async", "per_second",
         records.rows("burst", handler="async")),
        ("runs more tasks a second of a burst, plain", "per_second",
         records.rows("burst", handler="plain")),
        ("is less late at p50, nothing else pending", "50", alone),
        ("is less late at p99, nothing else pending", "99", alone),
        ("is less late at worst, nothing else pending", "100", alone),
        ("is less late at p50, among 200,000", "50", among),
        ("is less late at p99, among 200,000", "99", among),
        ("is less late at worst, among 200,000", "100", among),
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
    for function in (machine, contenders, lateness, lateness_pending, schedule_rate, burst, memory,
                     crash, recurring, cores, listeners, idle, keepalive, series, scripts, ahead,
                     *SECTIONS)
}  # fmt: skip
OF_ALL_SERVERS = {"machine", "memory", "contenders"}
"""Where each server is shown; elsewhere it is the first."""


OURS_ALONE = {"idle", "keepalive"}
"""Where the page shows no others."""


def fill(name: str, records: Records) -> str:
    """What stands in the page's blank of this name."""
    if name in OURS_ALONE:
        records = records.of_kinds("ours")
    return BLANKS[name](records if name in OF_ALL_SERVERS else records.of_first_server())


if __name__ == "__main__":
    main()
