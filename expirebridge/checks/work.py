"""Checks of the work: whether listeners run, are subscribed, keep up, and know all functions."""

import shlex
import socket
from collections import Counter

from expirebridge.checks.finding import Finding, error, ok, warning
from expirebridge.durations import human
from expirebridge.retry import UNKNOWN_DELAY
from expirebridge.settings import Doorbells
from expirebridge.store import calls
from expirebridge.store.calls import Health, Steps
from expirebridge.store.store import Database

_SAMPLE = 1000
_LISTEN = "expirebridge listen --tasks FOLDER"


def check_listeners(health: Health, *, here: bool = False) -> Finding:
    """Whether a listener beats; with `here`, whether one does on this machine."""
    beating = len(health.listeners)
    if here and beating:
        host, count = socket.gethostname(), len(_asked_for(health, here=True))
        if not count:
            elsewhere = f"no listener beats on {host}; {beating} elsewhere"
            return warning("listeners", elsewhere, _LISTEN)
        return ok("listeners", f"{_plural(count, 'listener beats', 'listeners beat')} on {host}")
    if beating:
        return ok("listeners", _plural(beating, "listener beats", "listeners beat"))
    if health.overdue:
        return error("listeners", f"no listener beats, and {_overdue(health)}", _LISTEN)
    return warning("listeners", "no listener beats: due tasks will wait", _LISTEN)


def check_subscriptions(
    database: Database, doorbell: Doorbells, health: Health, *, here: bool = False
) -> Steps[Finding]:
    """Whether all listeners are subscribed to the doorbell, and at least one to key events.

    With `Doorbells.CLOCK` none needs key events. The server only counts subscribers. So with `here`
    there must be as many as this machine has listeners: the failure of another machine's listener
    is not held against this one. At most two listeners subscribe to key events, and they may be
    changing places at this moment.
    """
    wanted = {database.doorbell_channel: len(_asked_for(health, here=here))}
    if doorbell is not Doorbells.CLOCK and not here:
        wanted[database.events("expired")] = 1
    reply = yield from calls.command("PUBSUB", "NUMSUB", *wanted)
    missing = [
        f"{count} of {at_least} to {channel}"
        for (channel, at_least), count in zip(wanted.items(), reply[1::2], strict=True)
        if count < at_least
    ]
    if missing:
        return warning(
            "subscriptions",
            f"too few listeners are subscribed ({', '.join(missing)}): the others have only their "
            "clock, and miss the changes of other clients",
            "read the listeners' log, then restart those that report a broken subscription",
        )
    heard = "the doorbell and to key events" if len(wanted) > 1 else "the doorbell"
    return ok("subscriptions", f"the listeners are subscribed to {heard}")


def check_overdue(health: Health, limit: float) -> Finding:
    """Whether due tasks start within `limit` seconds."""
    if health.overdue and health.waited > limit:
        return warning(
            "overdue",
            f"{_overdue(health)}, the first for {human(health.waited)} (limit {human(limit)}): the "
            "listeners are full, stuck or not running",
            "start more of them, or raise --concurrency: expirebridge listen --concurrency 200",
        )
    return ok("overdue", _overdue(health) if health.overdue else "no task is overdue")


def check_functions() -> Steps[Finding]:
    """Whether tasks wait because no listener that claimed them knew their function."""
    unknown = yield from calls.find_unhandled(UNKNOWN_DELAY, limit=_SAMPLE)
    all_of_them = unknown.examined < _SAMPLE
    scope = "" if all_of_them else f" among the {_SAMPLE:,} that are due first"
    if not unknown.functions:
        return ok("functions", f"no task{scope} waits for an unknown function")
    counts = Counter(unknown.functions)
    names = ", ".join(f"{func} ({count})" for func, count in counts.most_common(5))
    more = f" and {len(counts) - 5} others" if len(counts) > 5 else ""
    func = counts.most_common(1)[0][0]
    return warning(
        "functions",
        f"tasks{scope} wait for functions that the listeners do not know: {names}{more}; each "
        "fails after 24 h",
        "add them to the handlers' folder and restart the listeners, or cancel the tasks: "
        f"expirebridge list --func {shlex.quote(func)}",
    )


def _asked_for(health: Health, *, here: bool) -> list[str]:
    """All listeners that beat, or only this machine's: their names begin with its host name."""
    host = f"{socket.gethostname()}:"
    return [name for name in health.listeners if not here or name.startswith(host)]


def _overdue(health: Health) -> str:
    return _plural(health.overdue, "task is overdue", "tasks are overdue")


def _plural(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"
