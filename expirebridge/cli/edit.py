"""The command that gives a task other arguments."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.json_arguments import read_named, read_positional
from expirebridge.cli.options import AsJson, Url
from expirebridge.cli.output import print_fields, print_json, print_line
from expirebridge.cli.tasks import TaskId, not_possible, report_change
from expirebridge.task.edited_arguments import ArgumentChange, changes
from expirebridge.task.task import Change, Task

_CHECKED = {
    Change.EDITED: "they fit a signature that a running listener has declared",
    Change.EDITED_UNCHECKED: "no: no running listener has declared the signature",
}


def edit(
    id: TaskId,
    args: Annotated[
        str | None, typer.Option(metavar="JSON", help="An array: the positional arguments.")
    ] = None,
    kwargs: Annotated[
        str | None, typer.Option(metavar="JSON", help="An object: the keyword arguments.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a task that waits, is paused or has failed other arguments.

    Of --args and --kwargs, what you leave out stays as it is. It prints what differs, and whether
    a running listener has declared a signature that takes the new arguments. A failed task stays
    failed: `expirebridge run` starts it.

    Example: expirebridge edit order-17 --args '[43, "hello"]'
    """
    positional = read_positional(args) if args is not None else None
    named = read_named(kwargs) if kwargs is not None else None
    with Bridge(url) as bridge:
        before = bridge.get(id)
        change = bridge.edit(id, positional, named, expected=before)
        if before is None or change not in _CHECKED:
            return _report(bridge, id, change, as_json=as_json)
    differing = _differing(before, positional, named)
    if as_json:
        changed = [_as_data(one) for one in differing]
        return print_json({"id": id, "outcome": change, "changes": changed})
    print_line(f"{id}: {change}")
    rows = [(one.place, str(one)) for one in differing]
    return print_fields([*rows, ("checked", _CHECKED[change])])


def _report(bridge: Bridge, id: str, change: Change, *, as_json: bool) -> None:
    if change is not Change.UNCHANGED or as_json:
        report_change(bridge, id, change, as_json=as_json)
    else:
        not_possible(f"task {id!r} was changed meanwhile: nothing was done. Look at it again")


def _differing(
    before: Task, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> list[ArgumentChange]:
    return changes(
        before.args,
        before.kwargs,
        before.args if args is None else args,
        before.kwargs if kwargs is None else kwargs,
    )


def _as_data(change: ArgumentChange) -> dict[str, Any]:
    """A change as JSON holds it; `old` or `new` is left out if there is none."""
    values = {"old": change.old, "new": change.new}
    found = {name: orjson.loads(value) for name, value in values.items() if value is not None}
    return {"argument": change.place, **found}
