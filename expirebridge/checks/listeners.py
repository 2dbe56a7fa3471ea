"""Checks of the listeners: whether they beat, claim tasks, and are subscribed."""

import socket
from collections import Counter

from expirebridge.checks.finding import Finding, Level, error, first_of, ok, warning
from expirebridge.settings import Doorbells
from expirebridge.store.client import Database
from expirebridge.task.calls import inspection
from expirebridge.task.calls.call import PARTITIONS, Steps, at_if_available
from expirebridge.task.calls.fleet import Fleet, Idle
from expirebridge.task.calls.inspection import Health
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.texts import plural

_LISTEN = "expirebridge listen --tasks FOLDER"


def check_listeners(health: Health, known: Fleet, *, here: bool = False) -> Finding:
    """Check whether a listener beats and claims tasks; with `here`, whether one on this machine.

    Those of `known` that claim nothing are counted. It is a fault if none claims, or if a handler
    overran its timeout, or blocks the event loop; but with `here` it is none, since a probe must
    not restart a suspended listener, nor one that waits for its other tasks to end.
    """
    finding = _check_beats(health, here=here)
    names = set(_asked_for(health, here=here))
    asked = [one for one in known.listeners if one.name in names]
    idle = Counter(one.idle for one in asked if one.idle is not None)
    overruns = [id for one in asked for id in one.overruns]
    if finding.level is not Level.OK or not (idle or overruns):
        return finding
    counted = "".join(f", {count} {word}" for word, count in sorted(idle.items()))
    told = f"{finding.message}{counted}"
    if here:
        return ok("listeners", told)
    if overruns:
        return warning(
            "listeners", f"{told}; a handler overran its timeout and cannot be stopped: "
            f"{first_of(overruns)}",
            f"expirebridge why {overruns[0]}; a listener ends by itself, once its other tasks have "
            "ended, and is to be started again",
        )  # fmt: skip
    if idle.total() == len(asked):
        return warning(
            "listeners", f"{told}: none claims tasks",
            "resume them (SIGCONT), or start others: expirebridge handlers --fleet names them",
        )  # fmt: skip
    if Idle.BLOCKED in idle:
        return warning(
            "listeners", f"{told}: a handler blocks the event loop",
            "their log names it: make it a plain function, or let it await",
        )  # fmt: skip
    return ok("listeners", told)


def _check_beats(health: Health, *, here: bool) -> Finding:
    beating = len(health.listeners)
    if here and beating:
        host, count = socket.gethostname(), len(_asked_for(health, here=True))
        if not count:
            elsewhere = f"no listener beats on {host}; {beating} elsewhere"
            return warning("listeners", elsewhere, _LISTEN)
        return ok("listeners", f"{plural(count, 'listener beats', 'listeners beat')} on {host}")
    if beating:
        return ok("listeners", plural(beating, "listener beats", "listeners beat"))
    if health.overdue:
        return error("listeners", f"no listener beats, and {overdue(health)}", _LISTEN)
    return warning("listeners", "no listener beats: due tasks will wait", _LISTEN)


def check_subscriptions(
    database: Database, doorbell: Doorbells, health: Health, *, here: bool = False
) -> Steps[Finding]:
    """Check whether all listeners are subscribed to each doorbell, and at least one to key events.

    Each server is asked that has a partition; those that do not answer are left out. With
    `Doorbells.CLOCK` no listener needs key events. A server only counts its subscribers. So with
    `here` there must be as many as this machine has listeners: the failure of another machine's
    listener is not held against this one. At most two listeners subscribe to key events, and they
    may be changing places at this moment.
    """
    wanted = len(_asked_for(health, here=here))
    hears = doorbell is not Doorbells.CLOCK and not here
    layout = PartitionLayout(database.layout.prefix, (yield from PARTITIONS))
    few, deaf = dict[int, list[str]](), list[str]()
    for number in range(layout.count):
        counts = yield from at_if_available(inspection.count_subscribers(), number, fail_fast=True)
        if counts is None:
            continue
        if counts.doorbell < wanted:
            few.setdefault(counts.doorbell, []).append(layout.hash_tag_of(number))
        if hears and not counts.events:
            deaf.append(layout.hash_tag_of(number))
    doorbell_channel = f"{layout.prefix}:doorbell:{database.number}"
    missing = [f"{n} of {wanted} to {doorbell_channel}{_of(tags)}" for n, tags in few.items()]
    if deaf:
        missing.append(f"0 of 1 to {database.events('expired')}{_of(deaf)}")
    if missing:
        return warning(
            "subscriptions",
            f"too few listeners are subscribed ({', '.join(missing)}): the others have only their "
            "clock, and miss the changes of other clients",
            "read the listeners' log, then restart those that report a broken subscription",
        )
    heard = "the doorbell and to key events" if hears else "the doorbell"
    return ok("subscriptions", f"the listeners are subscribed to {heard}")


def _of(tags: list[str]) -> str:
    """Which partitions are meant; nothing if there is one."""
    return "" if tags == [""] else f" of {first_of(tags)}"


def _asked_for(health: Health, *, here: bool) -> list[str]:
    """All listeners that beat, or only this machine's: their names begin with its host name."""
    host = f"{socket.gethostname()}:"
    return [name for name in health.listeners if not here or name.startswith(host)]


def overdue(health: Health) -> str:
    """How many tasks are overdue."""
    return plural(health.overdue, "task is overdue", "tasks are overdue")
