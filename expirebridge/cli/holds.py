"""The commands hold, release and holds."""

from typing import Annotated, Any

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Url, read_moment
from expirebridge.cli.output import moment, print_json, print_line, print_table, warn
from expirebridge.task.hold import Hold

Func = Annotated[str | None, typer.Option(help="All tasks of this handler.")]
Tag = Annotated[str | None, typer.Option(help="All tasks with this tag.")]


def hold(
    func: Func = None,
    tag: Tag = None,
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
    """Put a handler or a tag on hold: its due tasks wait. Running ones go on.

    Example: expirebridge hold --func mail.send --reason "the provider is down" --until 2h
    """
    ends = read_moment(until, name="until", ahead=True)
    with Bridge(url) as bridge:
        bridge.hold(func=func, tag=tag, reason=reason, until=ends)
    if as_json:
        return print_json({"func": func, "tag": tag, "until": ends, "outcome": "on hold"})
    return print_line(f"{func or tag}: on hold" + (f" until {moment(ends)}" if ends else ""))


def release(
    func: Func = None,
    tag: Tag = None,
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

    Example: expirebridge release --tag customer-9 --spread 10m
    """
    with Bridge(url) as bridge:
        was_there = bridge.release(func=func, tag=tag, spread=spread)
    if as_json:
        print_json(
            {"func": func, "tag": tag, "outcome": "released" if was_there else "not on hold"}
        )
    elif was_there:
        print_line(f"{func or tag}: released")
    else:
        warn(f"{func or tag}: not on hold")
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
        "name": hold.name, "func": hold.func, "tag": hold.tag, "until": hold.until,
        "reason": hold.reason, "by": hold.by, "waiting": hold.waiting, "readable": hold.readable,
    }  # fmt: skip


def _as_row(hold: Hold) -> tuple[str, ...]:
    until = moment(hold.until) or "its release"
    return hold.name, f"{hold.waiting:,}", until, hold.by, hold.reason
