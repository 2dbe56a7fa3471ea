"""The command `format`: shows which versions can use a database, and changes that."""

from contextlib import closing
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from expirebridge.cli.figures import store_of
from expirebridge.cli.options import NOT_POSSIBLE, AsJson, Lease, Prefix, Url
from expirebridge.cli.output import print_fields, print_json, printable
from expirebridge.errors import FormatRefused
from expirebridge.hooks import Hooks
from expirebridge.operations import Operations
from expirebridge.settings import Settings
from expirebridge.task import Format


class Wanted(StrEnum):
    """The formats that there are."""

    PLAIN = "1"
    RAISED = "2"


def format_(
    to: Annotated[
        Wanted | None, typer.Argument(metavar="[1|2]", help="Change the format to this one.")
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
    lease: Lease = None,
    as_json: AsJson = False,
) -> None:
    """Show the format of the database, or change it.

    Plain use is format 1. What older code would overlook raises it to 2 when it is first used, and
    code that knows only format 1 then refuses the database. Before that, upgrade all listeners,
    producers and dashboards: while a listener beats that knows only format 1, nothing is changed,
    and the exit code is 3. `format 1` is the way back, once nothing needs format 2.

    Example: expirebridge format

    Example: expirebridge format 1
    """
    settings = Settings.read(url=url, prefix=prefix, lease=lease)
    operations = Operations(settings, Hooks())
    with closing(store_of(settings)) as store:
        try:
            if to is Wanted.RAISED:
                store.run(operations.raise_format())
            elif to is Wanted.PLAIN:
                store.run(operations.lower_format())
        except FormatRefused as refusal:
            typer.echo(f"expirebridge: {refusal}", err=True)
            raise typer.Exit(NOT_POSSIBLE) from None
        found = store.run(operations.read_format())
    if as_json:
        return print_json(asdict(found))
    return print_fields(_as_fields(found).items())


def _as_fields(found: Format) -> dict[str, str]:
    older = ", ".join(found.older_listeners)
    return {
        "format": str(found.written or "not written yet"),
        "known here": f"up to {found.known}",
        "needed for": ", ".join(found.uses) or "nothing beyond format 1",
        "know only format 1": printable(older) or "no listener that beats",
    }
