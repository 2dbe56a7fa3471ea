"""The check of a move: whether somebody carries it on."""

from expirebridge.checks.finding import Finding, ok, warning
from expirebridge.model.durations import human
from expirebridge.model.task import Counts
from expirebridge.store import commands
from expirebridge.store.commands import Steps

LEFT_AFTER = 15.0
"""Seconds without the mover after which a move was left half-way: it waits for no longer itself."""


def check_move(lease: float) -> Steps[Finding | None]:
    """How far a move of this database is; None if there is none."""
    return of_move((yield from commands.count(lease)))


def of_move(counts: Counts) -> Finding | None:
    """The same, of counts that are known."""
    moving = counts.moving
    if moving is None:
        return None
    idle = "" if moving.idle is None else human(round(moving.idle))
    if not moving.leaves:
        return ok("move", f"tasks arrive {moving.way}" + (f", the last {idle} ago" if idle else ""))
    tasks = counts.pending + counts.paused + counts.running + counts.failed + counts.succeeded
    left = tasks + moving.series
    if not left and not moving.on_their_way:
        return ok("move", f"all was moved {moving.way}")
    told = f"{left:,} tasks and series are left here"
    if moving.on_their_way:
        told += f", and {moving.on_their_way:,} are on their way, where nobody can run them"
    if moving.idle is None or moving.idle < LEFT_AFTER:
        return ok("move", f"goes on, {moving.way}: {told}")
    return warning(
        "move",
        f"left half-way, {moving.way}: nobody has carried it on for {idle}; {told}",
        "expirebridge move --to URL: the command with which it was begun goes on",
    )
