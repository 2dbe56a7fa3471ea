"""The commands of the group partitions: create them, and show them."""

from contextlib import closing
from typing import Annotated, Any

import typer

from expirebridge.bridge import Bridge, Operations
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import print_json, print_line, print_table, warn_of
from expirebridge.cli.stats import store_of
from expirebridge.errors import PartitionsDiffer
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings
from expirebridge.task.calls.looking import COUNTED
from expirebridge.task.listings import Counts
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.texts import plural

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

    Their number cannot be changed later. If the database has another number, nothing is changed,
    and the exit code is 3.

    Example: expirebridge partitions create 16
    """
    with Bridge(url, prefix=prefix) as bridge:
        try:
            bridge.create_partitions(count)
        except PartitionsDiffer as refusal:
            typer.echo(f"expirebridge: {refusal}", err=True)
            raise typer.Exit(NOT_POSSIBLE) from None
    if as_json:
        return print_json({"partitions": count})
    return print_line(plural(count, "partition", "partitions"))


@group.command("show")
def show(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Show how many partitions there are, and of each the tag and the tasks.

    Example: expirebridge partitions show
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store:
        found = store.run(Operations(settings, Hooks()).list_partitions())
    layout = PartitionLayout(settings.prefix, len(found))
    rows = [_row(layout, number, counts) for number, counts in enumerate(found)]
    if as_json:
        return print_json(rows)
    columns = list(rows[0])
    warn_of(one for counts in found for one in counts.left_out)
    return print_table(columns, [tuple(_shown(row[name]) for name in columns) for row in rows])


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _row(layout: PartitionLayout, number: int, counts: Counts) -> dict[str, Any]:
    """The row of a partition, without counts if it cannot be asked."""
    served = counts.left_out[0].why if counts.left_out else "served"
    numbers = {name: None if counts.left_out else getattr(counts, name) for name in COUNTED}
    return {"partition": number, "tag": layout.hash_tag_of(number), "is": served} | numbers
