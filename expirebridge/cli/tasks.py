"""Commands that make and find tasks."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from expirebridge.cli.changing import (
    TaskId,
    not_possible,
)
from expirebridge.cli.options import (
    AsJson,
    At,
    Every,
    IfExists,
    In,
    OnUnknown,
    Unknown,
    Url,
    read_moment,
    read_time,
)
from expirebridge.cli.output import (
    left_out_as_data,
    numbers_of,
    print_counts,
    print_fields,
    print_json,
    print_listing_json,
    print_tasks,
    table_of_tasks,
    task_as_data,
    task_as_fields,
    warn_of,
)
from expirebridge.cli.output import watch as show_until_stopped
from expirebridge.cli.progress import warn
from expirebridge.model import keys
from expirebridge.model.durations import seconds_of
from expirebridge.model.task import Listing, State, Task
from expirebridge.producer.bridge import Bridge

Arguments = Annotated[
    str, typer.Argument(help="JSON: an array, or an object of keyword arguments.")
]


def make(
    func: Annotated[str, typer.Argument(help="The handler: module.function.")],
    args: Arguments = "[]",
    delay: In = None,
    at: At = None,
    id: Annotated[str | None, typer.Option(help="An id of your own for the task.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    if_exists: Annotated[
        IfExists, typer.Option(help="What to do if an unfinished task has the id.")
    ] = IfExists.REJECT,
    max_wait: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="The longest that extend and replace may put it off in all."
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long keep still applies after a run began: at most 1h."
        ),
    ] = None,
    unknown: Unknown = OnUnknown.WARN,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a task.

    Example: expirebridge make mail.send '[42, "hi"]' --in 15m
    """
    positional, keywords = read_arguments(args)
    with Bridge(url, unknown=unknown.value) as bridge:
        task = bridge.make_task(
            func, positional, delay, kwargs=keywords, at=read_time(at, delay=delay), id=id,
            if_exists=if_exists.value, max_wait=max_wait, window=window, tags=tag or (),
        )  # fmt: skip
    _show(task, as_json=as_json)


def watch(
    id: TaskId,
    func: Annotated[str, typer.Argument(help="The handler that runs when the beats stop.")],
    args: Arguments = "[]",
    *,
    ttl: Annotated[
        str,
        typer.Option(metavar="DURATION", help="The longest time without a beat: 90s, 15m, 25h."),
    ],
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    unknown: Unknown = OnUnknown.WARN,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run a handler when beats stop coming: a dead man's switch.

    Example: expirebridge watch backup alerts.silent '["backup"]' --ttl 25h
    """
    positional, keywords = read_arguments(args)
    with Bridge(url, unknown=unknown.value) as bridge:
        task = bridge.watch(id, func, positional, ttl=ttl, kwargs=keywords, tags=tag or ())
    _show(task, as_json=as_json)


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
        not_possible(f"there is no task {id!r}")
    else:
        _show(task, as_json=as_json)


def list_(
    state: Annotated[State | None, typer.Option(help="Only tasks in this state.")] = None,
    func: Annotated[str | None, typer.Option(help="Only tasks of this handler.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only tasks with this tag.")] = None,
    due_before: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only tasks due before: 15m (from now), or a time."),
    ] = None,
    failed_since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only tasks that failed since: 1h (ago), or a time."),
    ] = None,
    limit: Annotated[int, typer.Option(help="The most tasks to show.")] = 100,
    page: Annotated[int, typer.Option(min=1, help="Which page of that many tasks to show.")] = 1,
    cursor: Annotated[
        str | None,
        typer.Option(help="Where to continue, as the last listing said. Better for many pages."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh until Ctrl-C; in a pipe show it once.")
    ] = False,
    every: Every = "2s",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List tasks.

    Waiting tasks come soonest first, finished ones latest first. Times are ISO 8601 with a zone.

    Example: expirebridge list --state failed --func mail.send

    Example: expirebridge list --state pending --due-before 15m --page 2
    """
    if cursor is not None and page > 1:
        raise typer.BadParameter("give either --page or --cursor")
    with Bridge(url) as bridge:

        def look() -> Listing:
            listing = bridge.list(
                state=state, func=func, tag=tag, limit=limit * page, cursor=cursor,
                due_before=read_moment(due_before, name="due-before", ahead=True),
                failed_since=read_moment(failed_since, name="failed-since", ahead=False),
            )  # fmt: skip
            return replace(listing, tasks=listing.tasks[limit * (page - 1) :])

        if as_json:
            print_listing_json(look())
        elif watch:
            show_until_stopped(
                lambda: table_of_tasks(look().tasks), seconds_of(every, name="every")
            )
        else:
            print_tasks(look())


def count(url: Url = None, as_json: AsJson = False) -> None:
    """Print totals, for scripts: tasks by state, overdue, listeners.

    Listeners are those that beat.

    Example: expirebridge count --json
    """
    with Bridge(url) as bridge:
        counts = bridge.count()
    numbers = numbers_of(counts)
    if as_json:
        return print_json(numbers | left_out_as_data(counts.left_out))
    warn_of(counts.left_out)
    if told := numbers.pop("moving", None):
        warn(f"moving {told['way']}: see expirebridge doctor")
    return print_counts(numbers, as_json=False)


def read_arguments(args: str) -> tuple[list[Any], dict[str, Any]]:
    """Read what was typed as JSON: positional and keyword arguments. Raises InvalidTask."""
    encoded = args.encode(errors="surrogateescape")  # check_args refuses what is not UTF-8
    keys.check_args(encoded)
    return keys.decode_args(encoded)


def _show(task: Task, *, as_json: bool) -> None:
    if as_json:
        print_json(task_as_data(task))
    else:
        print_fields(task_as_fields(task))
