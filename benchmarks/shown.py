"""How figures stand in the tables of the pages."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.lab.records import Records, Row


def duration(ms: float) -> str:
    """Milliseconds, as a reader wants them."""
    if ms == float("inf"):
        return "never"
    if abs(ms) >= 1000:
        return f"{ms / 1000:,.1f} s"
    return f"{ms:.1f} ms" if abs(ms) < 100 else f"{ms:.0f} ms"


def number(value: float) -> str:
    """A number with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def megabytes(value: float) -> str:
    """Bytes as MB."""
    return f"{value / 1e6:,.0f} MB"


def percent(value: float) -> str:
    """A part of a core, or of a whole."""
    return f"{value * 100:.1f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first column is text, the others are figures."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


Column = tuple[str, Callable[[Row], str]]


def rows(found: Sequence[Row], columns: Sequence[Column]) -> str:
    """A row for each of these; what could not be measured says why."""
    cells = []
    for row in found:
        if row.measured:
            cells.append([row.title, *(cell(row) for _, cell in columns)])
        else:
            cells.append([row.title, row.why_not, *["-"] * (len(columns) - 1)])
    return table(["", *(name for name, _ in columns)], cells)


def figure(name: str, show: Callable[[float], str]) -> Callable[[Row], str]:
    """The median of a figure."""
    return lambda row: show(row.median(name)) if row.has(name) else "-"


def count(name: str) -> Callable[[Row], str]:
    """The sum of a figure."""
    return lambda row: f"{row.total(name):,}"


def rounds(row: Row) -> str:
    """How often it was measured."""
    return str(sum(record.get("repeats", 1) for record in row.rounds))


def measured(*parts: Records) -> str:
    """The lines below a table: where, when and of which code its parts were measured."""
    places = {part.where() for part in parts}
    if len(places) == 1:
        return f"*Measured: {places.pop()}.*"
    return "\n\n".join(
        f"*Measured ({part.records[0]['measurement']}): {part.where()}.*" for part in parts
    )


def not_measured(measurement: str) -> str:
    """What stands in place of a table."""
    return f'*Not measured yet: `make bench ARGS="--measure {measurement}"` does it.*'


def settings(about: dict[str, Any]) -> str:
    """The settings of a contender, and what it takes no part in."""
    if not about["only"]:
        return str(about["settings"])
    return f"{about['settings']}; takes part in {', '.join(about['only'])} only: {about['because']}"
