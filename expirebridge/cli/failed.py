"""Commands for failed tasks: list them, run them again, or forget them."""

from collections.abc import Callable
from typing import Annotated

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.options import AsJson, Url, Yes, confirm, read_moment
from expirebridge.cli.output import (
    print_counts,
    print_listing_json,
    print_progress,
    print_tasks,
)
from expirebridge.errors import PartlyDone
from expirebridge.task.task import Change, State
from expirebridge.task.texts import plural

Func = Annotated[str | None, typer.Option(help="Only tasks of this handler.")]
Tag = Annotated[str | None, typer.Option(help="Only tasks with this tag.")]
GroupName = Annotated[str | None, typer.Option(metavar="NAME", help="Only members of this group.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Only tasks that failed since: 1h (ago), or a time."),
]

group = typer.Typer(
    help="Failed tasks: list them, run them again, or forget them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.command("list")
def list_(
    func: Func = None,
    tag: Tag = None,
    group: GroupName = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(help="The most tasks to show.")] = 100,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List failed tasks, latest first.

    Example: expirebridge failed list --func mail.send --since 1h
    """
    with Bridge(url) as bridge:
        listing = bridge.list(
            state=State.FAILED, func=func, tag=tag, group=group, limit=limit,
            failed_since=read_moment(since, name="since", ahead=False),
        )  # fmt: skip
    (print_listing_json if as_json else print_tasks)(listing)


@group.command()
def retry(
    func: Func = None,
    tag: Tag = None,
    group: GroupName = None,
    since: Since = None,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run failed tasks again, now, with their full number of attempts.

    It counts them and asks, unless you give --yes.

    Example: expirebridge failed retry --func mail.send --since 2h --yes

    Example: expirebridge failed retry --group import-7
    """
    with Bridge(url) as bridge:
        _change(
            "Run", bridge, bridge.retry_failed, func, tag, group, since, yes=yes, as_json=as_json
        )


@group.command()
def purge(
    func: Func = None,
    tag: Tag = None,
    group: GroupName = None,
    since: Since = None,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Forget failed tasks early. A listener removes them in its next pass.

    It counts them and asks, unless you give --yes.

    Example: expirebridge failed purge --tag customer-9
    """
    with Bridge(url) as bridge:
        _change(
            "Forget", bridge, bridge.purge_failed, func, tag, group, since, yes=yes, as_json=as_json
        )


def _change(
    verb: str,
    bridge: Bridge,
    change: Callable[..., dict[Change, int]],
    func: str | None,
    tag: str | None,
    group: str | None,
    since: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    moment = read_moment(since, name="since", ahead=False)
    try:
        ids = bridge.find_failed(func=func, tag=tag, group=group, since=moment)
    except PartlyDone as partly:
        typer.echo(f"expirebridge: {partly}", err=True)
        ids = partly.done
    if ids:
        confirm(f"{verb} {plural(len(ids), 'failed task', 'failed tasks')}?", yes=yes)
    done = change(ids, progress=print_progress)
    if as_json or done:
        print_counts(done, as_json=as_json)
    else:
        typer.echo("no failed task matches", err=True)
