"""Commands that make and find tasks."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, NoReturn

import typer

from expirebridge.bridge import Bridge, run_on
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.json_arguments import read_arguments
from expirebridge.cli.options import (
    AsJson,
    At,
    Every,
    IfExists,
    In,
    OnUnknown,
    Prefix,
    Unknown,
    Url,
    Yes,
    confirm,
    read_moment,
    read_time,
)
from expirebridge.cli.output import (
    left_out_as_data,
    moment,
    numbers_of,
    print_counts,
    print_fields,
    print_json,
    print_line,
    print_listing_json,
    print_progress,
    print_tasks,
    show_live,
    table_of_tasks,
    task_as_data,
    task_as_rows,
    warn,
    warn_of,
)
from expirebridge.cli.stats import store_of
from expirebridge.settings import Settings
from expirebridge.task.absence import what_is_elsewhere
from expirebridge.task.durations import seconds_of
from expirebridge.task.fields import capability_fields
from expirebridge.task.listings import Listing
from expirebridge.task.operations.listing import MAX_EXAMINED
from expirebridge.task.task import Change, State, Task
from expirebridge.task.texts import plural

# Commands that change tasks that exist.

TaskId = Annotated[str, typer.Argument(help="The task's id.")]
IdOrTag = Annotated[str | None, typer.Argument(help="The task's id.")]
Tag = Annotated[str | None, typer.Option(help="Instead of an id: all tasks with this tag.")]


def beat(id: TaskId, url: Url = None, as_json: AsJson = False) -> None:
    """Put a watched task off: what it watches is alive.

    Example: expirebridge beat backup
    """
    with Bridge(url) as bridge:
        report_change(bridge, id, bridge.beat(id), as_json=as_json)


def cancel(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Tasks' ids.")] = None,
    tag: Tag = None,
    func: Annotated[
        str | None, typer.Option(help="Instead of an id: all tasks of this handler.")
    ] = None,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel tasks by their ids, by a tag or by a handler. A running one is not attempted again.

    With --tag or --func it counts the tasks and asks first, unless you give --yes.

    Example: expirebridge cancel order-17 order-18

    Example: expirebridge cancel --tag customer-9 --yes

    Example: expirebridge cancel --func mail.send
    """
    if sum(map(bool, (ids, tag is not None, func is not None))) != 1:
        raise typer.BadParameter("give ids, --tag or --func")
    with Bridge(url) as bridge:
        if ids:
            changes = ((id, bridge.cancel(id)) for id in ids)
            return _report_changes(bridge, changes, as_json=as_json)
        _warn_of_what_is_elsewhere(bridge)
        if not yes:
            which = f"with the tag {tag}" if func is None else f"of {func}"
            confirm(f"Cancel {_unfinished(bridge, tag, func)} {which}?", yes=yes)
        if func is not None:
            done = bridge.cancel_func(func, progress=print_progress)
        else:
            done = bridge.cancel_tag(str(tag), progress=print_progress)
        return print_counts(done, as_json=as_json)


def reschedule(
    id: TaskId, delay: In = None, at: At = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Move a task's due time.

    Example: expirebridge reschedule order-17 --in 2h
    """
    with Bridge(url) as bridge:
        change = bridge.reschedule(id, delay, at=read_time(at, delay=delay))
        report_change(bridge, id, change, as_json=as_json)


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
            bridge, id, tag, partial(bridge.put_off, by=by), partial(bridge.put_off_tag, by=by),
            as_json=as_json,
        )  # fmt: skip


def pause(id: IdOrTag = None, tag: Tag = None, url: Url = None, as_json: AsJson = False) -> None:
    """Pause a task, or all tasks with a tag. The remaining time is kept.

    Example: expirebridge pause order-17
    """
    with Bridge(url) as bridge:
        _change(bridge, id, tag, bridge.pause, bridge.pause_tag, as_json=as_json)


def resume(id: IdOrTag = None, tag: Tag = None, url: Url = None, as_json: AsJson = False) -> None:
    """Resume a paused task, or all tasks with a tag.

    Example: expirebridge resume order-17
    """
    with Bridge(url) as bridge:
        _change(bridge, id, tag, bridge.resume, bridge.resume_tag, as_json=as_json)


def run(id: TaskId, url: Url = None, as_json: AsJson = False) -> None:
    """Make a task due now. A finished one runs again, whether it succeeded or failed.

    Example: expirebridge run order-17
    """
    with Bridge(url) as bridge:
        report_change(bridge, id, bridge.run_now(id), as_json=as_json)


def _change(
    bridge: Bridge,
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
        return report_change(bridge, id, one(id), as_json=as_json)
    _warn_of_what_is_elsewhere(bridge)
    done = all_of(tag, progress=print_progress)
    return print_counts(done, as_json=as_json)


_NOT_DONE = {
    Change.RUNNING: "its handler has begun",
    Change.WAITING: "it is due, and what for it waits is said by: expirebridge why {id}",
    Change.FINISHED: "it has ended: expirebridge show {id}",
    Change.NOT_FOUND: "{absent}",
    Change.NOT_WATCHED: "beats are for tasks that `expirebridge watch` has made",
    Change.ELSEWHERE: "the tasks are being moved: ask the other database",
    Change.UNCHANGED: "no task of an ordered limit waits behind it",
}
"""Why a change was not made, and what to do."""


def report_change(
    bridge: Bridge,
    id: str,
    change: Change,
    not_done: Mapping[Change, str] = _NOT_DONE,
    *,
    as_json: bool,
) -> None:
    """Print what became of a task; exit with an error if it was not changed.

    `not_done` has the answers that say so, each with its reason, in which {id} is the task's, and
    {absent} why it may not be there.
    """
    _report_changes(bridge, [(id, change)], not_done, as_json=as_json)


def _report_changes(
    bridge: Bridge,
    changes: Iterable[tuple[str, Change]],
    not_done: Mapping[Change, str] = _NOT_DONE,
    *,
    as_json: bool,
) -> None:
    """Print what becomes of each task; exit with an error if one is not changed."""
    all_well = True
    for id, change in changes:
        all_well = all_well and change not in not_done
        if as_json:
            print_json({"id": id, "outcome": change})
        elif change not in not_done:
            print_line(f"{id}: {change}")
        else:
            absent = bridge.why_absent(id) if change is Change.NOT_FOUND else ""
            reason = not_done[change].format(id=id, absent=absent)
            typer.echo(f"expirebridge: task {id!r}: {change}: {reason}", err=True)
    if not all_well:
        raise typer.Exit(NOT_POSSIBLE)


def _warn_of_what_is_elsewhere(bridge: Bridge) -> None:
    """Say on stderr which tasks a change by a tag or a handler does not find."""
    for sentence in run_on(bridge, what_is_elsewhere()):
        warn(sentence)


def _unfinished(bridge: Bridge, tag: str | None, func: str | None) -> str:
    """The number of unfinished tasks with a tag or of a function, as far as listings show."""
    if func is None:
        listings = [bridge.list(tag=tag, limit=MAX_EXAMINED)]
    else:
        unfinished = (state for state in State if not state.finished)
        listings = [bridge.list(state=state, func=func, limit=MAX_EXAMINED) for state in unfinished]
    count = sum(not task.state.finished for listing in listings for task in listing.tasks)
    if not all(listing.complete for listing in listings):
        return f"{count:,} or more tasks"
    return plural(count, "task", "tasks")


def no_such_task(bridge: Bridge, id: str) -> NoReturn:
    """Report that there is no task of this id here, and why that may be; exit with 3."""
    not_possible(f"there is no task {id!r}: {bridge.why_absent(id)}")


def not_possible(message: str) -> NoReturn:
    """Report that this cannot be done with the task, and exit with 3."""
    typer.echo(f"expirebridge: {message}", err=True)
    raise typer.Exit(NOT_POSSIBLE)


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
    on_signal: Annotated[
        str | None,
        typer.Option(
            metavar="FUNC", help="The handler that runs instead if a signal comes before it starts."
        ),
    ] = None,
    urgent: Annotated[
        bool, typer.Option("--urgent", help="Take it before others that are due.")
    ] = False,
    unknown: Unknown = OnUnknown.WARN,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a task.

    Example: expirebridge make mail.send '[42, "hi"]' --in 15m

    Example: expirebridge make orders.cancel '[42]' --in 15m --id pay-42 --on-signal orders.ship
    """
    positional, keywords = read_arguments(args)
    with Bridge(url, unknown=unknown.value) as bridge:
        task = bridge.make_task(
            func, positional, delay, kwargs=keywords, at=read_time(at, delay=delay), id=id,
            if_exists=if_exists.value, max_wait=max_wait, window=window, tags=tag or (),
            on_signal=on_signal, urgent=urgent,
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
    """Show one task; of a member or follow-up of a group also how far that is.

    Example: expirebridge show order-17
    """
    with Bridge(url) as bridge:
        task = bridge.get(id)
        if task is None:
            no_such_task(bridge, id)
    if as_json:
        print_json(task_as_data(task))
    else:
        with closing(store_of(Settings.read(url=url))) as store:
            print_fields(task_as_rows(task, store.run(capability_fields(task))))


def why(
    id: TaskId,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say why a task has not run, since when, and what would change it.

    The sentence may contain an argument of the task, in the name of a lane.

    Example: expirebridge why order-17
    """
    with Bridge(url) as bridge:
        reason = bridge.why(id)
        if reason is None:
            no_such_task(bridge, id)
    if as_json:
        print_json(asdict(reason))
    else:
        fields = {"state": reason.state, "why": reason.text, "since": moment(reason.since)}
        fields["remedy"] = reason.remedy
        print_fields((name, value) for name, value in fields.items() if value)


def list_(
    state: Annotated[State | None, typer.Option(help="Only tasks in this state.")] = None,
    func: Annotated[str | None, typer.Option(help="Only tasks of this handler.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only tasks with this tag.")] = None,
    group: Annotated[str | None, typer.Option(help="Only members of this group.")] = None,
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

    Unfinished tasks come soonest first, finished ones latest first. Times are ISO 8601 with a zone.

    Example: expirebridge list --state failed --func mail.send

    Example: expirebridge list --state pending --due-before 15m --page 2

    Example: expirebridge list --group import-7 --state failed
    """
    if cursor is not None and page > 1:
        raise typer.BadParameter("give either --page or --cursor")
    with Bridge(url) as bridge:

        def look() -> Listing:
            listing = bridge.list(
                state=state, func=func, tag=tag, group=group, limit=limit * page, cursor=cursor,
                due_before=read_moment(due_before, name="due-before", ahead=True),
                failed_since=read_moment(failed_since, name="failed-since", ahead=False),
            )  # fmt: skip
            return replace(listing, tasks=listing.tasks[limit * (page - 1) :])

        if as_json:
            print_listing_json(look())
        elif watch:
            show_live(lambda: table_of_tasks(look().tasks), seconds_of(every, name="every"))
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


def _show(task: Task, *, as_json: bool) -> None:
    if as_json:
        print_json(task_as_data(task))
    else:
        print_fields(task_as_rows(task))
