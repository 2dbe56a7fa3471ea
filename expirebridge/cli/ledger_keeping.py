"""The commands that keep the ledger's table small, and forget what it should not hold."""

from typing import TYPE_CHECKING, Annotated

import typer

from expirebridge.cli.ledger_office import opened
from expirebridge.cli.ledger_options import (
    LedgerName,
    LedgerUrl,
    connected,
    extra_is_there,
    settings_of,
)
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import print_json, print_line
from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.model.durations import seconds_of

if TYPE_CHECKING:
    from expirebridge.ledger.partition import Books


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group."""
    for command in (prune, erase):
        group.command(command.__name__)(command)


def prune(
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Only tasks that finished so long ago.  [default: EXPIREBRIDGE_LEDGER_KEEP, 30d]",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Delete the rows of tasks that finished long ago, in batches.

    Listeners with the ledger do so by themselves. A row stays while Redis may still know its task
    as unfinished.

    Example: expirebridge ledger prune --older-than 7d
    """
    with opened(url, prefix, ledger, ledger_name) as (server, office):
        keep = office.settings.ledger_keep if older_than is None else _seconds(older_than)
        count = sum(_pruned(books, keep) for books in office.all_books(server))
    if as_json:
        return print_json({"deleted": count})
    return print_line(f"deleted {count} rows")


def _pruned(books: "Books", keep: float) -> int:
    """Delete the old rows of one partition; returns how many."""
    pruned = books.prune(keep)
    count = pruned.deleted
    while pruned.place is not None:
        pruned = books.prune(keep, pruned.place)
        count += pruned.deleted
    return count


def erase(
    id: Annotated[str | None, typer.Option("--id", help="The task of this id.")] = None,
    ext: Annotated[str | None, typer.Option("--ext", help="All tasks of this ext.")] = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Erase what finished tasks were given, and why they failed.

    The rows stay. A listener with the ledger then has Redis forget it as well. Nothing of
    unfinished tasks is erased.

    Example: expirebridge ledger erase --ext customer-17
    """
    with extra_is_there():
        from expirebridge.ledger.ledger import Ledger  # noqa: PLC0415
    settings = settings_of(ledger, ledger_name)
    with connected(settings) as connection:
        own = Ledger(settings.ledger, name=settings.ledger_name)
        count = own.erase(connection, id, ext=ext)
    if as_json:
        return print_json({"erased": count})
    return print_line(f"erased {count} tasks")


def _seconds(text: str) -> float:
    try:
        return seconds_of(text, name="older-than")
    except InvalidTask:
        raise InvalidSetting(f"--older-than {text}: write it like 90s, 12h or 7d") from None
