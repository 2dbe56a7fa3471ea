"""The check of holds: whether each holds what was meant."""

import shlex
from collections.abc import Iterable
from typing import Protocol, cast

from expirebridge.capabilities import given
from expirebridge.checks.finding import Finding, first_of, ok, warning
from expirebridge.limits import hold_calls
from expirebridge.limits.hold import Hold
from expirebridge.task.calls import fleet
from expirebridge.task.calls.call import PARTITIONS, Steps
from expirebridge.task.calls.fleet import Fleet
from expirebridge.task.texts import plural


class GivesUnknown(Protocol):
    """The module `function_lookup` of a capability, as it is used here."""

    def unknown_of(self, fleet: Fleet, funcs: Iterable[str]) -> dict[str, str]:
        """Return those that no listener of a fleet has, and what to say of each."""
        ...


def check_holds(prefix: str, lease: float) -> Steps[Finding | None]:
    """Check whether each hold holds what was meant, and ends or says who set it.

    None if there is none. Functions are held against what the listeners know that beat within
    `lease` seconds. `prefix` is that of the database's keys.
    """
    found = yield from hold_calls.list_holds()
    if not found:
        return None
    live = yield from fleet.read_fleet(lease)
    idle = [one.name for one in found if not (one.func or one.tag or one.all)]
    endless = [one for one in found if one.name not in idle and one.until is None and not one.by]
    unknown = _unknown(live, [one.func for one in found if one.func is not None])
    if idle:
        tag = "{TAG}" if (yield from PARTITIONS) > 1 else ""
        return warning(
            "holds",
            f"holds nothing: {first_of(idle)}; write `func module.function`, `tag NAME` or `all`",
            f"HDEL {tag}{prefix}:holds {shlex.quote(idle[0])}",
        )  # fmt: skip
    if endless:
        named = [one.name if one.readable else f"{one.name} (not readable)" for one in endless]
        return warning(
            "holds", f"set by hand, without an end: {first_of(named)}",
            f"if it is meant, say so: expirebridge hold {_option_of(endless[0])} --reason TEXT; if "
            f"not: expirebridge release {_option_of(endless[0])}",
        )  # fmt: skip
    if unknown:
        named = [f"{func}: {why}" for func, why in unknown.items()]
        return warning(
            "holds", f"a function on hold is not known: {first_of(named)}",
            f"expirebridge release --func {shlex.quote(next(iter(unknown)))}",
        )  # fmt: skip
    waiting = sum(one.waiting for one in found)
    return ok(
        "holds",
        f"on hold: {first_of([one.name for one in found])}; "
        f"{plural(waiting, 'task waits', 'tasks wait')} for that",
    )


def _unknown(live: Fleet, funcs: Iterable[str]) -> dict[str, str]:
    """The functions that no listener has, and what to say of each."""
    unknown: dict[str, str] = {}
    for module in cast("tuple[GivesUnknown, ...]", given("function_lookup")):
        unknown |= module.unknown_of(live, funcs)
    return unknown


def _option_of(hold: Hold) -> str:
    """The option that names what is on hold, for a shell."""
    if hold.all:
        return "--all"
    if hold.func is not None:
        return f"--func {shlex.quote(hold.func)}"
    return f"--tag {shlex.quote(hold.tag or '')}"
