"""Options that several commands share."""

import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.model.durations import seconds_of
from expirebridge.settings import DEFAULT_URL, Doorbells

# Exit codes other than 0, which means done.
FAULT, BAD_INPUT, NOT_POSSIBLE, STUCK, ILL = 1, 2, 3, 4, 5

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EXPIREBRIDGE_URL",
        help=f"The server and its database.  [default: {DEFAULT_URL}]",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TasksFolder = Annotated[
    Path | None,
    typer.Option(
        "--tasks",
        envvar="EXPIREBRIDGE_TASKS",
        help="The folder of the handlers.  [default: tasks]",
        show_default=False,
    ),
]
AppDir = Annotated[
    Path | None,
    typer.Option(
        "--app-dir",
        envvar="EXPIREBRIDGE_APP_DIR",
        help="The directory in which the outermost package of the handlers is.  [default: the "
        "first one above --tasks without an __init__.py]",
        show_default=False,
    ),
]
OnlyMarked = Annotated[
    bool,
    typer.Option(
        "--only-marked",
        help="Take only functions with @handler, or in their module's HANDLERS.  "
        "[env var: EXPIREBRIDGE_ONLY_MARKED]",
    ),
]
Functions = Annotated[
    list[str] | None,
    typer.Option(
        "--functions",
        metavar="PATTERNS",
        help="Only the functions whose names match: 'mail.*,orders.rate'. May be repeated.  "
        "[env var: EXPIREBRIDGE_FUNCTIONS; default: all]",
        show_default=False,
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        help="The prefix of expirebridge's own keys.  [env var: EXPIREBRIDGE_PREFIX; "
        "default: expirebridge]",
        show_default=False,
    ),
]
Doorbell = Annotated[
    Doorbells | None,
    typer.Option(help="What wakes a listener: key events, its clock, or both.  [default: both]"),
]
Lease = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long a claim holds without a heartbeat: 10, 10s, 1m.  [default: 10s]",
    ),
]
In = Annotated[
    str | None,
    typer.Option("--in", metavar="DURATION", help="How long from now: 90s, 15m, 1h30m, 2d."),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="When: ISO 8601 with a zone, 2031-05-01T08:00Z."),
]


Every = Annotated[
    str, typer.Option(metavar="DURATION", help="How often to refresh: 500ms, 2s, 1m.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def as_typed(error: InvalidSetting) -> InvalidSetting:
    """The error with the name of the option in place of the setting's, if it is of a setting."""
    if not error.setting:
        return error
    option, value = error.setting.replace("_", "-"), error.value
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    return InvalidSetting(f"--{option} {text}: {error.fault}")


def read_moment(text: str | None, *, name: str, ahead: bool) -> datetime | None:
    """Read a time: ISO 8601 with a zone, or a duration ahead of now, or back from it.

    Raises InvalidTask if it is neither.
    """
    if text is None:
        return None
    try:
        seconds = timedelta(seconds=seconds_of(text, name=name))
    except InvalidTask:
        if not text[:4].isdigit():
            raise
        return _parse_time(text, name)
    now = datetime.now(UTC)
    return now + seconds if ahead else now - seconds


def confirm(question: str, *, yes: bool) -> None:
    """Ask before many tasks are changed. In a pipe nobody can answer: there --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        typer.echo(f"expirebridge: {question} stdin is not a terminal: add --yes", err=True)
        raise typer.Exit(BAD_INPUT)
    typer.confirm(question, abort=True, err=True)


class IfExists(StrEnum):
    """What `make` does when an unfinished task has the id."""

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"
    EXTEND = "extend"


class OnUnknown(StrEnum):
    """What `make` and `watch` do when no listener knows the function."""

    OFF = "off"
    WARN = "warn"
    REFUSE = "refuse"


Unknown = Annotated[
    OnUnknown, typer.Option(help="What to do if no running listener knows the handler.")
]


def read_time(at: str | None, *, delay: str | None) -> datetime | None:
    """Read the value of --at, which excludes --in.

    Raises InvalidTask if it is not an ISO 8601 time with a zone, and if both or neither are given.
    """
    if (at is None) == (delay is None):
        raise InvalidTask("give either --in or --at" + (", not both" if at is not None else ""))
    if at is None:
        return None
    return _parse_time(at, "at")


def _parse_time(text: str, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTask(
            f"--{name} {text}: write the time as ISO 8601, such as 2031-05-01T08:00+02:00"
        ) from None
    if moment.tzinfo is None:
        raise InvalidTask(f"--{name} {text}: add a zone, such as {text}Z or {text}+02:00")
    return moment
