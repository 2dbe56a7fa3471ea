"""Commands that change tasks that exist."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from expirebridge.cli.options import NOT_POSSIBLE, AsJson, At, In, Url, Yes, confirm, read_time
from expirebridge.cli.output import print_counts, print_json, print_line, print_progress
from expirebridge.model.task import Change
from expirebridge.producer.bridge import Bridge
from expirebridge.producer.listing import MAX_EXAMINED

TaskId = Annotated[str, typer.Argument(help="The task's id.")]
IdOrTag = Annotated[str | None, typer.Argument(help="The task's id.")]
Tag = Annotated[str | None, typer.Option(help="Instead of an id: all tasks with this tag.")]


def beat(id: TaskId, url: Url = None, as_json: AsJson = False) -> None:
    """Put a watched task off: what it watches is alive.

    Example: expirebridge beat backup
    """
    with Bridge(url) as bridge:
        _report(id, bridge.beat(id), as_json=as_json)


def cancel(
    id: IdOrTag = None,
    tag: Tag = None,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a task, or all tasks with a tag. A running one is not attempted again.

    With --tag it counts the tasks and asks first, unless you give --yes.

    Example: expirebridge cancel order-17

    Example: expirebridge cancel --tag customer-9 --yes
    """
    with Bridge(url) as bridge:
        if tag is not None and id is None and not yes:
            confirm(f"Cancel {_unfinished(bridge, tag)} tasks with the tag {tag}?", yes=yes)
        _change(id, tag, bridge.cancel, bridge.cancel_tag, as_json=as_json)


def reschedule(
    id: TaskId, delay: In = None, at: At = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Move a task's due time.

    Example: expirebridge reschedule order-17 --in 2h
    """
    with Bridge(url) as bridge:
        _report(id, bridge.reschedule(id, delay, at=read_time(at, delay=delay)), as_json=as_json)


def put_off(
    id: IdOrTag = None,
    tag: Tag = None,
    *,
    by: Annotated[str, typer.Option(metavar="DURATION", help="By how much: 90s, 15m, 2h.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Put a task off, or all tasks with a tag.

    Each is moved by that duration from its own due time.

    Example: expirebridge put-off --tag customer-9 --by 2h
    """
    with Bridge(url) as bridge:
        _change(
            id, tag, partial(bridge.put_off, by=by), partial(bridge.put_off_tag, by=by),
            as_json=as_json,
        )  # fmt: skip


def pause(id: IdOrTag = None, tag: Tag = None, url: Url = None, as_json: AsJson = False) -> None:
    """Pause a waiting task, or all tasks with a tag. The remaining time is kept.

    Example: expirebridge pause order-17
    """
    with Bridge(url) as bridge:
        _change(id, tag, bridge.pause, bridge.pause_tag, as_json=as_json)


def resume(id: IdOrTag = None, tag: Tag = None, url: Url = None, as_json: AsJson = False) -> None:
    """Resume a paused task, or all tasks with a tag.

    Example: expirebridge resume order-17
    """
    with Bridge(url) as bridge:
        _change(id, tag, bridge.resume, bridge.resume_tag, as_json=as_json)


def run(id: TaskId, url: Url = None, as_json: AsJson = False) -> None:
    """Make a task due now. A finished one runs again, whether it succeeded or failed.

    Example: expirebridge run order-17
    """
    with Bridge(url) as bridge:
        _report(id, bridge.run_now(id), as_json=as_json)


def _change(
    id: str | None,
    tag: str | None,
    one: Callable[[str], Change],
    all_of: Callable[..., dict[Change, int]],
    *,
    as_json: bool,
) -> None:
    """Change one task, or all tasks with a tag, and print the result."""
    if (id is None) == (tag is None):
        raise typer.BadParameter("give either an id or --tag")
    if id is not None:
        return _report(id, one(id), as_json=as_json)
    done = all_of(tag, progress=print_progress)
    return print_counts(done, as_json=as_json)


def _report(id: str, change: Change, *, as_json: bool) -> None:
    well = change not in {
        Change.RUNNING, Change.FINISHED, Change.NOT_FOUND, Change.NOT_WATCHED, Change.ELSEWHERE
    }  # fmt: skip
    if as_json:
        print_json({"id": id, "outcome": change})
        if not well:
            raise typer.Exit(NOT_POSSIBLE)
    elif well:
        print_line(f"{id}: {change}")
    else:
        not_possible(f"task {id!r}: {change}")


def _unfinished(bridge: Bridge, tag: str) -> str:
    """How many tasks with a tag are not finished, as far as a listing shows."""
    listing = bridge.list(tag=tag, limit=MAX_EXAMINED)
    count = sum(not task.state.finished for task in listing.tasks)
    return f"{count:,}" if listing.complete else f"{count:,} or more"


def not_possible(message: str) -> None:
    """Report that this cannot be done with the task, and exit with 3."""
    typer.echo(f"expirebridge: {message}", err=True)
    raise typer.Exit(NOT_POSSIBLE)
