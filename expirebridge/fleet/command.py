"""The command that compares waiting tasks with the code of the next deploy."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from expirebridge.checks.topology import refuse_limits
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import (
    AppDir,
    AsJson,
    LedgerName,
    LedgerUrl,
    OnlyMarked,
    Prefix,
    TasksFolder,
    Url,
    refuse_password,
)
from expirebridge.cli.output import (
    moment,
    print_json,
    print_line,
    printable,
    prints_aside,
    progress_bar,
)
from expirebridge.cli.stats import store_of
from expirebridge.fleet.comparing import Scope, compare, compare_beside, scope_of
from expirebridge.fleet.compatibility import AlikeTasks, Arguments, BlindSpot, Comparison
from expirebridge.handlers import Registry
from expirebridge.settings import HandlersPlace, Settings
from expirebridge.task.durations import seconds_of
from expirebridge.task.task import from_ms
from expirebridge.task.texts import plural

SHOWN = 20
"""Most groups of failing tasks that are printed; --json has all."""
NAMED = 5
"""Most names of a list that are printed."""


def compat(
    tasks: TasksFolder = None,
    app_dir: AppDir = None,
    only_marked: OnlyMarked = False,
    due_within: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Only tasks that are due by then: 15m, 7d. Paused ones are left out.",
        ),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed tasks, too: somebody may retry them.")
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
    ledger: LedgerUrl = None,
    ledger_name: LedgerName = None,
    as_json: AsJson = False,
) -> None:
    """Compare the tasks that wait with new code, before you deploy it.

    Loads the handlers in the folder, and looks at the function and the arguments of each task that
    is pending, paused or running; of one that waits for a signal, also at the function that the
    signal runs. Exits with 3 if any would fail: if no handler has its function's name, or its
    arguments do not fit the signature, or cannot be read. Nothing is changed. With a ledger, rows
    that Redis does not have yet are compared, too. Exits with 1 if a listener with these handlers
    would not start, since they have limits and the database has several partitions.

    Example: expirebridge compat --tasks new/tasks

    Example: expirebridge compat --tasks new/tasks --due-within 7d --json
    """
    refuse_password(ledger)
    settings = Settings.read(
        url=url, prefix=prefix, tasks=tasks, app_dir=app_dir, only_marked=only_marked or None,
        ledger=ledger, ledger_name=ledger_name,
    )  # fmt: skip
    within = seconds_of(due_within, name="due-within") if due_within is not None else None
    # All that is in the folder, although a listener may be restricted to some of it.
    with prints_aside():
        registry = Registry.load(
            settings.tasks, app_dir=settings.app_dir, only_marked=settings.only_marked
        )
    with closing(store_of(settings)) as store:
        scope = store.run(scope_of(due_within=within, failed=failed))
        store.run(refuse_limits(registry))
        with progress_bar("comparing", scope.total) as advance:
            comparison = store.run(compare(registry, scope, progress=advance))
        later = store.run(compare_beside(comparison, settings, within))
    scope = replace(scope, later=scope.later + later)
    if as_json:
        print_json(_as_data(comparison, scope))
    else:
        _print_report(comparison, scope, folder=settings.tasks, handlers=len(registry))
    if comparison.failing:
        raise typer.Exit(NOT_POSSIBLE)


def _as_data(comparison: Comparison, scope: Scope) -> dict[str, Any]:
    return {
        "ok": not comparison.failing,
        "compared": comparison.compared,
        "failing": comparison.failing,
        "groups": [_group_as_data(group) for group in comparison.groups()],
        "blind_spots": [asdict(spot) for spot in comparison.blind_spots()],
        "left_out": {"later": scope.later, "paused": scope.paused},
    }


def _group_as_data(group: AlikeTasks) -> dict[str, Any]:
    arguments = group.arguments
    return {
        "verdict": group.verdict,
        "function": group.func,
        "on_signal": group.on_signal,
        "positional": arguments.positional if arguments is not None else None,
        "keywords": arguments.keywords if arguments is not None else None,
        "reason": group.reason,
        "count": group.count,
        "first_due": from_ms(group.first_due) if group.first_due is not None else None,
        "ids": group.ids,
    }


def _print_report(
    comparison: Comparison, scope: Scope, *, folder: HandlersPlace, handlers: int
) -> None:
    failing = [group for group in comparison.groups() if group.verdict.fails]
    for group in failing[:SHOWN]:
        _print_group(group)
    if len(failing) > SHOWN:
        print_line(
            f"and {plural(len(failing) - SHOWN, 'more group', 'more groups')}: --json lists all\n"
        )
    print_line(
        f"tasks {comparison.compared:,}   would fail {comparison.failing:,}   "
        f"handlers {handlers:,} in {folder}"
    )
    for line in _not_seen(comparison.blind_spots(), scope):
        print_line(f"- {printable(line)}")


def _print_group(group: AlikeTasks) -> None:
    what = f"{group.func or 'tasks'}{_signed(group.arguments)}"
    first = moment(from_ms(group.first_due)) if group.first_due is not None else None
    due = f"first due {first}" if first is not None else "no due time"
    second = f", or {printable(group.on_signal)} on a signal" if group.on_signal else ""
    print_line(f"{group.count:,} of {printable(what)}{second}, {due}")
    print_line(f"    {printable(group.reason)}")
    print_line(f"    such as {printable(', '.join(group.ids))}\n")


def _signed(arguments: Arguments | None) -> str:
    """The arguments as in a call, without their values."""
    if arguments is None:
        return ""
    positional, keywords = arguments
    first = ["..."] * positional if positional <= NAMED else [f"{positional:,} arguments"]
    named = [f"{name}=..." for name in keywords]
    return f"({', '.join(first + ([_listed(named)] if named else []))})"


def _not_seen(spots: Iterable[BlindSpot], scope: Scope) -> Iterator[str]:
    """The limits of the comparison: what it cannot decide, or did not examine."""
    yield "not compared: types and values of arguments"
    if scope.later:
        yield f"not compared: {scope.later:,} due later"
    if scope.paused:
        yield f"not compared: {scope.paused:,} paused, without a due time"
    for spot in spots:
        yield f"may fail all the same: {spot.count:,} of {_listed(spot.functions)} ({spot.reason})"


def _listed(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
