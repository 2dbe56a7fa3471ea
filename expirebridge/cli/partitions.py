"""Commands for the partitions of a database, and for the names of trigger keys."""

from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.figures import store_of
from expirebridge.cli.options import NOT_POSSIBLE, AsJson, Prefix, Url
from expirebridge.cli.output import print_json, print_line, print_table
from expirebridge.cli.tasks import read_arguments
from expirebridge.errors import FormatRefused, PartitionsDiffer
from expirebridge.hooks import Hooks
from expirebridge.operations import Operations
from expirebridge.settings import Settings
from expirebridge.slots import Layout

group = typer.Typer(
    help="Partitions: create them, and show the tag of each.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.command("create")
def create(
    count: Annotated[int, typer.Argument(help="How many: a power of two, up to 256.")],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Divide a new database into partitions, before anything else is written to it.

    Their number cannot be changed later. If the database has another number, or a listener beats
    that is older than partitions, nothing is changed, and the exit code is 3.

    Example: expirebridge partitions create 16
    """
    with Bridge(url, prefix=prefix) as bridge:
        try:
            bridge.create_partitions(count)
        except (FormatRefused, PartitionsDiffer) as refusal:
            typer.echo(f"expirebridge: {refusal}", err=True)
            raise typer.Exit(NOT_POSSIBLE) from None
    if as_json:
        return print_json({"partitions": count})
    return print_line("1 partition" if count == 1 else f"{count} partitions")


@group.command("show")
def show(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Show how many partitions there are, and of each the tag and the tasks.

    Example: expirebridge partitions show
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store:
        found = store.run(Operations(settings, Hooks()).list_partitions())
    layout = Layout(settings.prefix, len(found))
    rows = [
        {"partition": number, "tag": layout.slot_of(number)} | asdict(counts)
        for number, counts in enumerate(found)
    ]
    if as_json:
        return print_json(rows)
    columns = list(rows[0])
    return print_table(columns, [tuple(str(row[name]) for name in columns) for row in rows])


def key(
    id: Annotated[str, typer.Argument(help="The task's id.")],
    func: Annotated[str, typer.Argument(help="The handler: module.function.")],
    args: Annotated[
        str, typer.Argument(help="JSON: an array, or an object of keyword arguments.")
    ] = "[]",
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Print the name of the key with which another client makes this task.

    With several partitions it begins with the tag of the one to which the id belongs.

    Example: redis-cli -n 1 SET "$(expirebridge key dev:7 devices.offline '[7]')" '' EX 30
    """
    positional, keywords = read_arguments(args)
    with Bridge(url, prefix=prefix) as bridge:
        print_line(bridge.key_of(id, func, positional, keywords).decode())
