"""Commands about limits and holds."""

import re
from dataclasses import asdict
from typing import Annotated, Any

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Prefix, Url, read_moment
from expirebridge.cli.output import (
    left_out_as_data,
    moment,
    print_json,
    print_line,
    print_table,
    warn,
    warn_of,
)
from expirebridge.cli.tasks import report_change
from expirebridge.errors import InvalidTask
from expirebridge.limits.hold import Hold


def limits(
    lanes: Annotated[int, typer.Option(help="The most lanes to show: 1 to 1000.")] = 20,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Show the limits of the handlers, and the lanes in which most tasks are.

    A lane is one value of a limit. Tasks in a lane have a slot, or wait for one. The names of lanes
    contain arguments of tasks.

    Example: expirebridge limits

    Example: expirebridge limits --json | jq '.lanes[] | select(.waiting > 0) | .name'
    """
    with Bridge(url, prefix=prefix) as bridge:
        found = bridge.limits(lanes=lanes)
    if as_json:
        told = asdict(found)
        del told["left_out"]
        return print_json(told | left_out_as_data(found.left_out))
    warn_of(found.left_out)
    if not (found.limits or found.lanes):
        return print_line("no handler has a limit")
    print_table(
        ("limit", "numbers", "functions"),
        [(one.name, str(one), " ".join(one.functions)) for one in found.limits],
    )
    if found.numbers:
        print_line()
        print_table(
            ("set", "to", "declared", "ignored"),
            [(one.lane, one.stored, str(one.declared or ""), one.ignored) for one in found.numbers],
        )
    print_line()
    return print_table(
        ("lane", "taken", "of", "waiting", "oldest due"),
        [
            (
                lane.name, str(lane.held), str(lane.limit.most or "") if lane.limit else "",
                f"{lane.waiting:,}", moment(lane.oldest_due) or "",
            )
            for lane in found.lanes
        ],
    )  # fmt: skip


def limit(
    limit: Annotated[str, typer.Argument(help="Its name, as limits shows it.")],
    number: Annotated[
        str | None, typer.Argument(help="How many run at once, or start in the rate's time.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="For this value of its argument alone. Else for all.")
    ] = None,
    declared: Annotated[
        bool, typer.Option("--declared", help="Take it back: what the handlers declare counts.")
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Set the number of a limit or of a rate, instead of what its handlers declare.

    It counts from the next claim on, for all listeners, and is kept through deploys.

    Example: expirebridge limit exports:customer 20

    Example: expirebridge limit exports:customer --value acme 50

    Example: expirebridge limit exports:customer --value acme --declared
    """
    if (number is None) != declared:
        raise InvalidTask("give either number or declared" + (", not both" if declared else ""))
    set_to = None if number is None else _whole(number)
    with Bridge(url, prefix=prefix) as bridge:
        bridge.set_limit(limit, set_to, value=value)
    if as_json:
        return print_json({"limit": limit, "value": value, "number": set_to})
    lane = limit if value is None else f"{limit}={value}"
    return print_line(f"{lane}: " + ("as declared" if set_to is None else f"{set_to:,}"))


def _whole(number: str) -> Any:
    """The number that a text is; itself if it is none, which `set_limit` refuses."""
    return int(number) if re.fullmatch(r"-?[0-9]{1,20}", number) else number


def let_pass(
    id: Annotated[str, typer.Argument(help="The id of the failed task.")],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Let the next tasks of an ordered limit go on, past a failed one that keeps its slot.

    Example: expirebridge let-pass 4f2b8c
    """
    with Bridge(url, prefix=prefix) as bridge:
        report_change(bridge, id, bridge.let_pass(id), as_json=as_json)


def weight(
    limit: Annotated[str, typer.Argument(help="The name of a fair limit.")],
    tenant: Annotated[str, typer.Argument(help="A value of its argument.")],
    weight: Annotated[float, typer.Argument(help="Turns for each one of the others.")],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Give a tenant of a fair limit more turns than others, or fewer.

    Example: expirebridge weight sms acme 3
    """
    with Bridge(url, prefix=prefix) as bridge:
        bridge.weight(limit, tenant, weight)
    if as_json:
        return print_json({"limit": limit, "tenant": tenant, "weight": weight})
    turns = f"{weight:g} turn{'' if weight == 1 else 's'}"
    return print_line(f"{tenant} has {turns} of {limit} for each one of the others")


# The commands hold, release and holds.

Func = Annotated[str | None, typer.Option(help="All tasks of this handler.")]
Tag = Annotated[str | None, typer.Option(help="All tasks with this tag.")]
All = Annotated[bool, typer.Option("--all", help="All tasks.")]


def hold(
    func: Func = None,
    tag: Tag = None,
    all: All = False,
    reason: Annotated[str, typer.Option(help="Shown by holds.")] = "",
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="When it ends: 2h (from now), or a time. Else when released."
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Put a handler, a tag or all tasks on hold: those that are due wait. Running ones go on.

    Example: expirebridge hold --all --reason outage

    Example: expirebridge hold --func mail.send --reason "the provider is down" --until 2h
    """
    ends = read_moment(until, name="until", ahead=True)
    with Bridge(url) as bridge:
        bridge.hold(func=func, tag=tag, all=all, reason=reason, until=ends)
    if as_json:
        return print_json(
            {"func": func, "tag": tag, "all": all, "until": ends, "outcome": "on hold"}
        )
    return print_line(
        f"{func or tag or 'all tasks'}: on hold" + (f" until {moment(ends)}" if ends else "")
    )


def release(
    func: Func = None,
    tag: Tag = None,
    all: All = False,
    spread: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Each is due at a time of its own, over so long: 10m. Else at once.",
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """End a hold: its tasks are due, the first first.

    Example: expirebridge release --all --spread 10m
    """
    with Bridge(url) as bridge:
        was_there = bridge.release(func=func, tag=tag, all=all, spread=spread)
    name = func or tag or "all tasks"
    if as_json:
        outcome = "released" if was_there else "not on hold"
        print_json({"func": func, "tag": tag, "all": all, "outcome": outcome})
    elif was_there:
        print_line(f"{name}: released")
    else:
        warn(f"{name}: not on hold")
    if not was_there:
        raise typer.Exit(NOT_POSSIBLE)


def holds(url: Url = None, as_json: AsJson = False) -> None:
    """List what is on hold, and how many tasks wait for that.

    Example: expirebridge holds
    """
    with Bridge(url) as bridge:
        found = bridge.holds()
    if as_json:
        return print_json([_as_data(one) for one in found])
    columns = ("on hold", "waiting", "until", "by", "reason")
    return print_table(columns, [_as_row(one) for one in found])


def _as_data(hold: Hold) -> dict[str, Any]:
    return {
        "name": hold.name, "func": hold.func, "tag": hold.tag, "all": hold.all, "until": hold.until,
        "reason": hold.reason, "by": hold.by, "waiting": hold.waiting, "readable": hold.readable,
    }  # fmt: skip


def _as_row(hold: Hold) -> tuple[str, ...]:
    until = moment(hold.until) or "its release"
    return hold.name, f"{hold.waiting:,}", until, hold.by, hold.reason
