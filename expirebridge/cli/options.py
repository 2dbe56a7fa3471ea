"""Options that several commands share."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from expirebridge.cli.ending import BAD_INPUT
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.settings import DEFAULT_URL, Doorbells
from expirebridge.task.durations import seconds_of

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
    typer.Option(
        help="What wakes a listener: its clock, or key events, too.  "
        "[env var: EXPIREBRIDGE_DOORBELL; default: both]",
    ),
]
Lease = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long a claim holds without a heartbeat: 10, 10s, 1m.  "
        "[env var: EXPIREBRIDGE_LEASE; default: 10s]",
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
            raise InvalidTask(
                f"--{name} {text}: write a duration, such as 90s, 15m, 1h30m or 2d, or a time as "
                "ISO 8601, such as 2031-05-01T08:00+02:00"
            ) from None
        return _parse_time(text, name)
    now = datetime.now(UTC)
    return now + seconds if ahead else now - seconds


def confirm(question: str, *, yes: bool) -> None:
    """Ask before many tasks are changed. A pipe has no answer: there --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        typer.echo(f"expirebridge: {question} stdin is not a terminal: add --yes", err=True)
        raise typer.Exit(BAD_INPUT)
    typer.confirm(question, abort=True, err=True)


class IfExists(StrEnum):
    """The choices of `make` when an unfinished task has the id."""

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"
    EXTEND = "extend"


class OnUnknown(StrEnum):
    """The choices of `make` and `watch` when no listener has the function."""

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


# Which ledger.

LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="The SQL database, without a password: that belongs into EXPIREBRIDGE_LEDGER.  "
        "[env var: EXPIREBRIDGE_LEDGER]",
        show_default=False,
    ),
]
LedgerName = Annotated[
    str | None,
    typer.Option(
        "--ledger-name",
        help="Which ledger.  [env var: EXPIREBRIDGE_LEDGER_NAME; default: default]",
        show_default=False,
    ),
]
LedgerKeep = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long rows of finished tasks are kept.  [env var: EXPIREBRIDGE_LEDGER_KEEP; "
        "default: 30d]",
        show_default=False,
    ),
]
LedgerHorizon = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How far ahead rows are brought to Redis; those due later stay in SQL until they come "
        "so near.  [env var: EXPIREBRIDGE_LEDGER_HORIZON; default: all are brought at once]",
        show_default=False,
    ),
]


@contextmanager
def extra_is_there() -> Iterator[None]:
    """Turn a missing package into an InvalidSetting that names the extra."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise InvalidSetting(str(missing)) from None


def refuse_password(url: str | None) -> None:
    """Raise InvalidSetting for a URL of the command line that holds a password."""
    if url is None:
        return
    with extra_is_there():
        from expirebridge.ledger.engine import read_url  # noqa: PLC0415
    if read_url(url).password is not None:
        raise InvalidSetting(
            "--ledger: others on this machine can read a command's arguments; put a URL with a "
            "password into EXPIREBRIDGE_LEDGER"
        )
