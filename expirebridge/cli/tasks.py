"""Commands that make, find and steer tasks."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from expirebridge import wire
from expirebridge.bridge import Bridge
from expirebridge.cli.options import NOT_POSSIBLE, AsJson, At, IfExists, In, Url, read_time
from expirebridge.cli.output import (
    arguments,
    moment,
    print_fields,
    print_json,
    print_line,
    print_progress,
    print_table,
    task_as_data,
    task_as_fields,
)
from expirebridge.task import Change, State, Task

TaskId = Annotated[str, typer.Argument(help="The task's id.")]
IdOrTag = Annotated[str | None, typer.Argument(help="The task's id.")]
Tag = Annotated[str | None, typer.Option(help="All tasks with this tag, in place of one.")]
Arguments = Annotated[
    str, typer.Argument(help="JSON: an array, or an object of keyword arguments.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (
        make, watch, beat, show, list_, cancel, reschedule, put_off, pause, resume, run, count
    ):  # fmt: skip
        app.command(command.__name__.rstrip("_").replace("_", "-"))(command)


def make(
    func: Annotated[str, typer.Argument(help="The handler: module.function.")],
    args: Arguments = "[]",
    delay: In = None,
    at: At = None,
    id: Annotated[str | None, typer.Option(help="A name of your own for the task.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    if_exists: Annotated[
        IfExists, typer.Option(help="What to do if an unfinished task has the id.")
    ] = IfExists.REJECT,
    max_wait: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long extend and replace can put it off in all."),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a task.

    Example: expirebridge make mail.send '[42, "hi"]' --in 15m
    """
    positional, keywords = _read_arguments(args)
    with Bridge(url) as bridge:
        task = bridge.make_task(
            func, positional, delay, kwargs=keywords, at=read_time(at, delay=delay), id=id,
            if_exists=if_exists.value, max_wait=max_wait, tags=tag or (),
        )  # fmt: skip
    _show(task, as_json=as_json)


def watch(
    id: TaskId,
    func: Annotated[str, typer.Argument(help="The handler that runs when the beats stop.")],
    args: Arguments = "[]",
    *,
    ttl: Annotated[
        str, typer.Option(metavar="DURATION", help="How long no beat may come: 90s, 15m, 25h.")
    ],
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run a handler unless beats come: a dead-man's switch.

    Example: expirebridge watch backup alerts.silent '["backup"]' --ttl 25h
    """
    positional, keywords = _read_arguments(args)
    with Bridge(url) as bridge:
        task = bridge.watch(id, func, positional, ttl=ttl, kwargs=keywords, tags=tag or ())
    _show(task, as_json=as_json)


def beat(id: TaskId, url: Url = None, as_json: AsJson = False) -> None:
    """Say that what a task watches is alive.

    Example: expirebridge beat backup
    """
    with Bridge(url) as bridge:
        _tell(id, bridge.beat(id), as_json=as_json)


def show(
    id: TaskId,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one task.

    Example: expirebridge show order-17
    """
    with Bridge(url) as bridge:
        task = bridge.get(id)
    if task is None:
        _not_possible(f"there is no task {id!r}")
    else:
        _show(task, as_json=as_json)


def list_(
    state: Annotated[State | None, typer.Option(help="Only tasks in this state.")] = None,
    func: Annotated[str | None, typer.Option(help="Only tasks of this handler.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only tasks with this tag.")] = None,
    limit: Annotated[int, typer.Option(help="Tasks to show at most.")] = 100,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List tasks, waiting ones soonest first, finished ones latest first.

    Example: expirebridge list --state failed --func mail.send
    """
    with Bridge(url) as bridge:
        listing = bridge.list(state=state, func=func, tag=tag, limit=limit)
    if as_json:
        tasks = [task_as_data(task) for task in listing.tasks]
        print_json({"tasks": tasks, "examined": listing.examined, "complete": listing.complete})
        return
    print_table(
        ("id", "state", "due", "function", "arguments", "attempt", "error"),
        [
            (
                task.id, task.state, moment(task.due) or "", task.func, arguments(task),
                str(task.attempt), (task.error or "").rpartition("\n")[2],
            )
            for task in listing.tasks
        ],
    )  # fmt: skip
    if not listing.complete:
        typer.echo(f"({listing.examined} tasks looked at; there are more)", err=True)


def cancel(id: IdOrTag = None, tag: Tag = None, url: Url = None, as_json: AsJson = False) -> None:
    """Cancel a task, or all that have a tag. Of a running one, no further attempt is made.

    Example: expirebridge cancel order-17
    """
    with Bridge(url) as bridge:
        _change(id, tag, bridge.cancel, bridge.cancel_tag, as_json=as_json)


def reschedule(
    id: TaskId, delay: In = None, at: At = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Move a task's due time.

    Example: expirebridge reschedule order-17 --in 2h
    """
    with Bridge(url) as bridge:
        _tell(id, bridge.reschedule(id, delay, at=read_time(at, delay=delay)), as_json=as_json)


def put_off(
    id: IdOrTag = None,
    tag: Tag = None,
    *,
    by: Annotated[str, typer.Option(metavar="DURATION", help="By how much: 90s, 15m, 2h.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Put a task off by so much, or all that have a tag, each from when it is due.

    Example: expirebridge put-off --tag customer-9 --by 2h
    """
    with Bridge(url) as bridge:
        _change(
            id, tag, partial(bridge.put_off, by=by), partial(bridge.put_off_tag, by=by),
            as_json=as_json,
        )  # fmt: skip


def pause(id: IdOrTag = None, tag: Tag = None, url: Url = None, as_json: AsJson = False) -> None:
    """Pause a task that waits, or all that have a tag; the time that is left is kept.

    Example: expirebridge pause order-17
    """
    with Bridge(url) as bridge:
        _change(id, tag, bridge.pause, bridge.pause_tag, as_json=as_json)


def resume(id: IdOrTag = None, tag: Tag = None, url: Url = None, as_json: AsJson = False) -> None:
    """Let a paused task go on, or all that have a tag.

    Example: expirebridge resume order-17
    """
    with Bridge(url) as bridge:
        _change(id, tag, bridge.resume, bridge.resume_tag, as_json=as_json)


def run(id: TaskId, url: Url = None, as_json: AsJson = False) -> None:
    """Make a task due now; a finished or failed one starts anew.

    Example: expirebridge run order-17
    """
    with Bridge(url) as bridge:
        _tell(id, bridge.run_now(id), as_json=as_json)


def count(url: Url = None, as_json: AsJson = False) -> None:
    """Count tasks by state, overdue ones, and listeners that beat.

    Example: expirebridge count --json
    """
    with Bridge(url) as bridge:
        counts = asdict(bridge.count())
    if as_json:
        print_json(counts)
    else:
        print_fields((name, str(number)) for name, number in counts.items())


def _read_arguments(args: str) -> tuple[list[Any], dict[str, Any]]:
    encoded = args.encode()
    wire.check_args(encoded)
    return wire.decode_args(encoded)


def _show(task: Task, *, as_json: bool) -> None:
    if as_json:
        print_json(task_as_data(task))
    else:
        print_fields(task_as_fields(task))


def _change(
    id: str | None,
    tag: str | None,
    one: Callable[[str], Change],
    all_of: Callable[..., dict[Change, int]],
    *,
    as_json: bool,
) -> None:
    """Change one task, or all that have a tag, and tell what became of them."""
    if (id is None) == (tag is None):
        raise typer.BadParameter("give either an id or --tag")
    if id is not None:
        return _tell(id, one(id), as_json=as_json)
    done = all_of(tag, progress=print_progress)
    if as_json:
        return print_json({change.value: number for change, number in done.items()})
    return print_fields((change, str(number)) for change, number in done.items())


def _tell(id: str, change: Change, *, as_json: bool) -> None:
    well = change not in {
        Change.RUNNING, Change.FINISHED, Change.NOT_FOUND, Change.NOT_WATCHED
    }  # fmt: skip
    if as_json:
        print_json({"id": id, "outcome": change})
        if not well:
            raise typer.Exit(NOT_POSSIBLE)
    elif well:
        print_line(f"{id}: {change}")
    else:
        _not_possible(f"task {id!r}: {change}")


def _not_possible(message: str) -> None:
    typer.echo(f"expirebridge: {message}", err=True)
    raise typer.Exit(NOT_POSSIBLE)
