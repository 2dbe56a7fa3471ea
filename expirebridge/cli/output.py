"""Prints data: JSON for programs, tables for people."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from expirebridge.cli.ending import ends_at_ctrl_c
from expirebridge.errors import ServerError
from expirebridge.task.durations import human
from expirebridge.task.fields import FIELDS, FieldValue, Format, values_of
from expirebridge.task.history import HistoryEntry
from expirebridge.task.listings import Counts, LeftOut, Listing, texts_of
from expirebridge.task.task import Change, State, Task
from expirebridge.task.texts import plural

# Wide enough for any line: columns are cut in a terminal, never in a pipe.
_PIPE_WIDTH = 10_000
# The columns that are cut first if the terminal is too narrow.
_GIVE_WAY = {"arguments", "error", "about", "functions"}


def print_json(value: Any) -> None:
    """Print a value as JSON, in ASCII if the output takes nothing else."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(orjson.loads(text), indent=2)
    sys.stdout.write(text + "\n")


@contextmanager
def prints_aside() -> Iterator[None]:
    """What the program's own modules print in the block is not a part of the result: to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def print_line(text: str = "") -> None:
    """Print a line unchanged."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_counts(counts: Mapping[str, int] | Mapping[Change, int], *, as_json: bool) -> None:
    """Print each number with its name."""
    if as_json:
        print_json({str(name): number for name, number in counts.items()})
    else:
        print_fields((name, str(number)) for name, number in counts.items())


def print_progress(counts: Mapping[str, int] | Mapping[Change, int]) -> None:
    """Show progress on stderr, on one line that is overwritten, if it is a terminal."""
    if sys.stderr.isatty():
        line = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        sys.stderr.write(f"\r{line} ")
        sys.stderr.flush()


def print_shown(shown: RenderableType) -> None:
    """Print to a terminal, fitted to its width, or to a pipe, whole and without trailing spaces."""
    if sys.stdout.isatty():
        return Console(highlight=False).print(shown)
    console = Console(width=_PIPE_WIDTH, highlight=False)
    with console.capture() as drawn:
        console.print(shown)
    return print_line("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def show_live(render: Callable[[], RenderableType], every: float) -> None:
    """Show something and refresh it every `every` seconds until Ctrl-C; in a pipe show it once.

    If the server does not answer, the error is shown, and the next refresh asks again.
    """
    if not sys.stdout.isatty():
        return print_shown(render())
    ends_at_ctrl_c()
    with contextlib.suppress(KeyboardInterrupt), Live(screen=True, auto_refresh=False) as live:
        while True:
            try:
                shown = render()
            except ServerError as error:
                shown = Text(printable(str(error)), style="red")
            live.update(shown, refresh=True)
            time.sleep(every)
    return None


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    print_shown(table_of(columns, rows))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose cells are shown as plain text."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column not in _GIVE_WAY)
    for row in rows:
        cells = (printable(cell) for cell in row)
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    return table


def print_tasks(listing: Listing) -> None:
    """Print a listing as a table. If there is more, say so on stderr."""
    print_shown(table_of_tasks(listing.tasks))
    warn_of(listing.left_out)
    if listing.cursor is not None:
        sys.stderr.write(
            f"({plural(listing.examined, 'task', 'tasks')} looked at; there are more: "
            f"--cursor {listing.cursor})\n"
        )


def table_of_tasks(tasks: Iterable[Task]) -> Table:
    """The tasks as a table."""
    return table_of(
        ("id", "state", "due", "function", "arguments", "attempt", "error"),
        [
            (
                task.id, task.state, moment(task.due) or "", task.func, arguments(task),
                str(task.attempt), (task.error or "").rpartition("\n")[2],
            )
            for task in tasks
        ],
    )  # fmt: skip


def print_listing_json(listing: Listing) -> None:
    """Print a listing as JSON."""
    tasks = [task_as_data(task) for task in listing.tasks]
    print_json(
        {
            "tasks": tasks,
            "examined": listing.examined,
            "complete": listing.complete,
            "cursor": listing.cursor,
        }
        | left_out_as_data(listing.left_out)
    )


def numbers_of(counts: Counts) -> dict[str, Any]:
    """The counts as data, with the move if there is one."""
    numbers = asdict(counts)
    del numbers["left_out"]
    if counts.moving is None:
        del numbers["moving"]
    return numbers


def left_out_as_data(left_out: Iterable[LeftOut]) -> dict[str, Any]:
    """The partitions that an answer leaves out, as a field of JSON, if there are any."""
    found = [asdict(one) for one in left_out]
    return {"left_out": found} if found else {}


def warn_of(left_out: Iterable[LeftOut]) -> None:
    """Print the partitions that an answer leaves out, on stderr."""
    for text in texts_of(left_out):
        sys.stderr.write(f"left out: {text}\n")


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    rows = list(fields)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_line(f"{name:<{width}}  {printable(value, keep_lines=True)}")


def printable(text: str, *, keep_lines: bool = False) -> str:
    """The text with control characters escaped: data from Redis must not control a terminal."""
    return "".join(
        char
        if char.isprintable() or (keep_lines and char == "\n")
        else char.encode("unicode_escape").decode()
        for char in text
    )


def as_data(value: Any, *, without: Container[str] = ()) -> dict[str, Any]:
    """A value as JSON can hold it: its attributes; durations in seconds, bytes as text."""
    names = (field.name for field in fields(value))
    return {name: _plain(getattr(value, name)) for name in names if name not in without}


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case bytes():
            return _decoded(value)
        case _:
            return value


def _decoded(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def task_as_data(task: Task) -> dict[str, Any]:
    """A task as JSON can hold it: times in ISO 8601, the key as text."""
    data = as_data(task, without={"trace"} if task.outcome else {"trace", "outcome"})
    data["history"] = [
        {name: value for name, value in asdict(entry).items() if value not in {None, ""}}
        for entry in task.history
    ]
    return data


def task_as_rows(task: Task, added: Iterable[FieldValue] = ()) -> list[tuple[str, str]]:
    """A task as names and texts for people, with what capabilities add to it."""
    shown = [*values_of(task, FIELDS), *added]
    history = "\n         ".join(map(_happened, task.history))
    rows = as_rows(shown, args=arguments(task), due=_due(task))
    return [*rows, ("history", history)] if history else rows


def _due(task: Task) -> str | None:
    """When it is due; of a paused task, which has no such time, how long after it is resumed."""
    if task.state is not State.PAUSED:
        return moment(task.due)
    left = round((task.due - datetime.now(UTC)).total_seconds())
    return f"{human(left)} after it is resumed" if left > 0 else "as soon as it is resumed"


def _happened(entry: HistoryEntry) -> str:
    """An entry of a task's history, as a line."""
    parts = [entry.what]
    if entry.attempt:
        parts.append(f"attempt {entry.attempt}")
    if entry.old_due or entry.new_due:
        parts.append(f"due {_at(entry.old_due)} -> {_at(entry.new_due)}")
    if entry.times > 1:
        parts.append(f"{entry.times} times")
    return f"{_at(entry.at)}  {', '.join(parts)}" + (f": {entry.error}" if entry.error else "")


def _at(when: datetime | None) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z") if when else "-"


def arguments(task: Task) -> str:
    """The arguments, written as in a call."""
    return arguments_of(task.args, task.kwargs)


def arguments_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Positional and keyword arguments, written as in a call."""
    positional = [orjson.dumps(value).decode() for value in args]
    named = [f"{name}={orjson.dumps(value).decode()}" for name, value in kwargs.items()]
    return f"({', '.join(positional + named)})"


def moment(when: datetime | None) -> str | None:
    """A time, absolute and relative."""
    if when is None:
        return None
    left = (when - datetime.now(UTC)).total_seconds()
    relative = f"in {human(left)}" if left > 0 else f"{human(-left)} ago"
    return f"{_at(when)} ({relative})"


_WRITTEN: Mapping[Format, Callable[[Any], str | None]] = {
    Format.NUMBER: "{:,}".format,
    Format.MOMENT: moment,
    Format.DURATION: lambda time: human(time.total_seconds()),
    Format.LIST: ", ".join,
    Format.TAGS: " ".join,
    Format.JSON: lambda value: orjson.dumps(value).decode(),
    Format.BYTES: _decoded,
}
"""How text writes what it does not write as it is."""


def as_rows(shown: Iterable[FieldValue], **own: str | None) -> list[tuple[str, str]]:
    """Fields as names and texts for people, without those that are empty.

    `own` has the texts of those that are written in a way of their own.
    """
    rows = list[tuple[str, str]]()
    for field, value in shown:
        name = field.name if field.text is None else field.text
        text = own[field.name] if field.name in own else _written(field.format, value)
        if name and text:
            rows.append((name, text))
    return rows


def _written(format: Format, value: Any) -> str | None:
    if value is None or format not in _WRITTEN:
        return str(value or "")
    return _WRITTEN[format](value)


# A progress bar, and warnings: both on stderr.


@contextmanager
def progress_bar(what: str, total: int | None, *, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if a person watches."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        # Some versions of rich write an empty line even for a bar that is disabled.
        yield lambda _: None
        return
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


def warn(message: str) -> None:
    """Print a line that is not a part of the result."""
    typer.echo(f"expirebridge: {message}", err=True)
