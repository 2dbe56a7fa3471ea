"""The commands about groups."""

from typing import Annotated, Any, NoReturn

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Url, Yes, confirm
from expirebridge.cli.output import (
    as_data,
    as_rows,
    left_out_as_data,
    moment,
    print_fields,
    print_json,
    print_line,
    print_table,
    warn,
    warn_of,
)
from expirebridge.errors import GroupNotFound
from expirebridge.groups.fields import FIELDS
from expirebridge.groups.values import Group, GroupState
from expirebridge.task.fields import values_of

Name = Annotated[str, typer.Argument(help="The name of the group.")]

group = typer.Typer(
    help="Groups of tasks, and what follows when all have ended: look at them, close, cancel them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.command("list")
def list_(
    limit: Annotated[int, typer.Option(help="The most groups to show.")] = 100,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List groups: those that have not ended, then those that ended last.

    A group is forgotten a day after it has ended.

    Example: expirebridge groups list

    Example: expirebridge groups list --json | jq '.groups[] | select(.failed > 0) | .name'
    """
    with Bridge(url) as bridge:
        listing = bridge.list_groups(limit=limit)
    if as_json:
        return print_json(
            {"groups": list(map(group_as_data, listing.groups)), "complete": listing.complete}
            | left_out_as_data(listing.left_out)
        )
    warn_of(listing.left_out)
    print_table(
        ("group", "state", "left", "of", "failed", "created", "ended"),
        [
            (
                one.name, one.state, f"{one.left:,}", f"{one.total:,}", f"{one.failed:,}",
                moment(one.created) or "", moment(one.ended) or "",
            )
            for one in listing.groups
        ],
    )  # fmt: skip
    if len(listing.groups) == limit and not listing.complete:
        typer.echo("(there are more: --limit)", err=True)
    return None


@group.command()
def show(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Show how far a group is. Its members are shown by expirebridge list --group NAME.

    Example: expirebridge groups show import-7
    """
    with Bridge(url) as bridge:
        found = bridge.get_group(name)
    if found is None:
        raise GroupNotFound(name)
    if as_json:
        return print_json(group_as_data(found))
    cancelled = f"{found.cancelled:,}" if found.cancelled else ""
    return print_fields(as_rows(values_of(found, FIELDS), cancelled=cancelled))


@group.command()
def close(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Close an open group: it takes no more members, and ends when all have ended.

    Example: expirebridge groups close crawl
    """
    with Bridge(url) as bridge:
        _report(bridge.close_group(name), as_json=as_json)


@group.command()
def cancel(name: Name, yes: Yes = False, url: Url = None, as_json: AsJson = False) -> None:
    """Cancel a group: its follow-up, and all members that have not ended.

    Running ones are not attempted again. It counts the members and asks first, unless you give
    --yes.

    Example: expirebridge groups cancel import-7 --yes
    """
    with Bridge(url) as bridge:
        found = bridge.get_group(name)
        if found is None:
            raise GroupNotFound(name)
        if found.state is not GroupState.ENDED:
            members = "member that has" if found.left == 1 else "members that have"
            confirm(f"Cancel {name}, with {found.left:,} {members} not ended?", yes=yes)
            found = bridge.cancel_group(name)
    if found.state is GroupState.ENDED:
        _refuse(found, as_json=as_json)
    _report(found, as_json=as_json)


def group_as_data(group: Group) -> dict[str, Any]:
    """A group as JSON can hold it."""
    return {"name": group.name, "state": group.state} | as_data(group)


def _report(group: Group, *, as_json: bool) -> None:
    if as_json:
        print_json({"group": group.name, "outcome": group.state})
    else:
        print_line(f"{group.name}: {group.state}")


def _refuse(group: Group, *, as_json: bool) -> NoReturn:
    if as_json:
        _report(group, as_json=True)
    else:
        warn(f"group {group.name!r} has ended")
    raise typer.Exit(NOT_POSSIBLE)
