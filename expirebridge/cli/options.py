"""Options that several commands share."""

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from expirebridge.errors import InvalidTask
from expirebridge.settings import DEFAULT_URL, Doorbells

# Exit codes, beside 0 for what was done.
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
Prefix = Annotated[
    str | None,
    typer.Option(
        help="What the names of expirebridge's keys begin with.  [default: expirebridge]",
        show_default=False,
    ),
]
Doorbell = Annotated[
    Doorbells | None,
    typer.Option(help="What wakes a listener: key events, its clock, or both.  [default: both]"),
]
Lease = Annotated[
    float | None,
    typer.Option(help="Seconds that a claim holds without a heartbeat.  [default: 10]"),
]
In = Annotated[
    str | None,
    typer.Option("--in", metavar="DURATION", help="How long from now: 90s, 15m, 1h30m, 2d."),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="When: ISO 8601 with a zone, 2031-05-01T08:00Z."),
]


class IfExists(StrEnum):
    """What `make` does when an unfinished task has the id."""

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"
    EXTEND = "extend"


def read_time(at: str | None, *, delay: str | None) -> datetime | None:
    """Read the value of --at, which goes without --in.

    Raises InvalidTask when it is no ISO 8601 time with a zone, and unless one of both is given.
    """
    if (at is None) == (delay is None):
        raise InvalidTask("give either --in or --at" + (", not both" if at is not None else ""))
    if at is None:
        return None
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise InvalidTask(
            f"--at {at}: write the time as ISO 8601, such as 2031-05-01T08:00+02:00"
        ) from None
    if moment.tzinfo is None:
        raise InvalidTask(f"--at {at}: add a zone, such as {at}Z or {at}+02:00")
    return moment
