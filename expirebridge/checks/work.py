"""Checks of the work: whether listeners run, are subscribed, keep up, and know all functions."""

import shlex
import socket
from collections import Counter
from collections.abc import Sequence

from expirebridge.checks.finding import Finding, Level, error, ok, warning
from expirebridge.checks.server import SAMPLE, other_data
from expirebridge.fleet.functions import KnownFunctions
from expirebridge.foreign import function_library
from expirebridge.ledger.calls import MOST_DIRTY, WriteBackBacklog, read_ledgers
from expirebridge.series.calls import series_page
from expirebridge.series.values import Series
from expirebridge.settings import Doorbells, Settings
from expirebridge.store.client import Database
from expirebridge.task.answers import Counts, LeftOut, texts_of
from expirebridge.task.calls import fleet, inspection, looking, reconciling
from expirebridge.task.calls.call import PARTITIONS, Steps, at_if_available
from expirebridge.task.calls.fleet import Fleet, Idle
from expirebridge.task.calls.inspection import Health
from expirebridge.task.calls.pages import BEGINNING, Pages
from expirebridge.task.counting import plural
from expirebridge.task.durations import human
from expirebridge.task.keys import InvalidKey, parse_key
from expirebridge.task.lacking import Lacking
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.policies import UNKNOWN_DELAY
from expirebridge.task.task import from_ms

_SAMPLE = 1000
BEHIND = 60.0
"""Seconds after which a tick that was not made, or did not begin, is reported."""
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
        return error("listeners", f"no listener beats, and {_overdue(health)}", _LISTEN)
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
            few.setdefault(counts.doorbell, []).append(layout.slot_of(number))
        if hears and not counts.events:
            deaf.append(layout.slot_of(number))
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


def check_overdue(health: Health, limit: float) -> Finding:
    """Check whether due tasks start within `limit` seconds."""
    if health.overdue and health.waited > limit:
        return warning(
            "overdue",
            f"{_overdue(health)}, the first for {human(health.waited)} (limit {human(limit)}): the "
            "listeners are full, stuck or not running",
            "start more of them, or raise --concurrency: expirebridge listen --concurrency 200",
        )
    return ok("overdue", _overdue(health) if health.overdue else "no task is overdue")


def check_functions(lease: float) -> Steps[Finding]:
    """Check whether tasks wait because no listener knows their function, or will when they are due.

    The first is what listeners found that claimed such tasks. For the second, the functions of the
    tasks that come next are held against what the listeners know that beat within `lease` seconds.
    """
    waiting = yield from inspection.find_unhandled(UNKNOWN_DELAY, limit=_SAMPLE)
    coming = yield from inspection.survey_functions(_SAMPLE)
    known = KnownFunctions.of((yield from fleet.read_fleet(lease)))
    counts = Counter(waiting.functions(Lacking.FUNCTION))
    lacking = known.lacking(func for func in coming.functions if func not in counts)
    problems = []
    if counts:
        named = [f"{func} ({count})" for func, count in counts.most_common()]
        problems.append(
            f"tasks{_scope(waiting.examined)} wait for functions that the listeners do not know: "
            f"{first_of(named)}; each fails after 24 h"
        )
    if lacking:
        named = [f"{func}: {lack}" for func, lack in lacking.items()]
        problems.append(
            f"tasks{_scope(coming.examined)} will wait when they are due: {first_of(named)}"
        )
    if problems:
        func = next(iter([*(func for func, _ in counts.most_common(1)), *lacking]))
        return warning(
            "functions",
            "; ".join(problems),
            "add them to the handlers' folder and restart the listeners, or cancel the tasks: "
            f"expirebridge list --func {shlex.quote(func)}",
        )
    fine = f"no task{_scope(waiting.examined)} waits for an unknown function"
    if known.silent:
        silent = plural(known.silent, "listener does", "listeners do")
        fine += f" ({silent} not say what it knows: of tasks to come nothing is known)"
    return ok("functions", fine)


def check_series(lease: float) -> Steps[Finding | None]:
    """Check whether series make their ticks, and live listeners declare those of handlers.

    None if there is no series. Only the first thousand are looked at.
    """
    series, now = list[Series](), 0
    pages = Pages(lambda cursor: series_page(cursor, lease, _SAMPLE))
    while len(series) < _SAMPLE and (page := (yield from pages.next())):
        series += [Series.of(one, page.now) for one in page.series]
        now = page.now
    if not series:
        return None
    counts = yield from looking.count(lease)
    broken = [one.id for one in series if one.schedule is None]
    behind = [one.id for one in series if one.is_behind(BEHIND)]
    orphans = [one.id for one in series if one.declared and not one.carriers and counts.listeners]
    idle = [one.id for one in series if _never_ran(one, now)]
    if broken:
        return error(
            "series", f"the schedule of {first_of(broken)} cannot be read: no more ticks are made",
            f"expirebridge series show {shlex.quote(broken[0])}",
        )  # fmt: skip
    if behind:
        return warning(
            "series", f"the next tick was not made in time of {first_of(behind)}",
            f"{_LISTEN}: listeners make the ticks",
        )  # fmt: skip
    if orphans:
        return warning(
            "series", f"no listener declares any more: {first_of(orphans)}",
            "expirebridge series prune, or start the listeners that declare them",
        )  # fmt: skip
    if idle:
        return warning(
            "series", f"never ran, although their time has come: {first_of(idle)}",
            f"expirebridge series show {shlex.quote(idle[0])}",
        )  # fmt: skip
    return ok("series", plural(len(series), "series has its next tick", "series have their ticks"))


def _never_ran(series: Series, now: int) -> bool:
    """True if no tick ever began, although one was due long enough ago to have been retaken."""
    if series.last is not None or series.paused is not None or series.created is None:
        return False
    first = series.coming(1, series.created)
    return bool(first) and (from_ms(now) - first[0]).total_seconds() > BEHIND


def _scope(examined: int) -> str:
    """The part of the tasks that was examined, unless it was all."""
    return "" if examined < _SAMPLE else f" among the {_SAMPLE:,} that are due first"


NAMED = 5
"""Names in a finding; the others are counted."""


def first_of(named: list[str]) -> str:
    """The first of these names, and the number of the others."""
    more = f" and {plural(len(named) - NAMED, 'other', 'others')}" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more


def _of(tags: list[str]) -> str:
    """Which partitions are meant; nothing if there is one."""
    return "" if tags == [""] else f" of {first_of(tags)}"


def _asked_for(health: Health, *, here: bool) -> list[str]:
    """All listeners that beat, or only this machine's: their names begin with its host name."""
    host = f"{socket.gethostname()}:"
    return [name for name in health.listeners if not here or name.startswith(host)]


def _overdue(health: Health) -> str:
    return plural(health.overdue, "task is overdue", "tasks are overdue")


# Checks the write-back from Redis to the rows of a ledger.

MANY_DIRTY = MOST_DIRTY // 2
"""So many lagging rows in a partition are reported."""
_LEDGER_LISTEN = "start a listener with the ledger, or read the log of those that have it"


def check_dirty(limit: float) -> Steps[list[Finding]]:
    """Check that rows follow their tasks in time; no finding where there is no ledger.

    Beyond a bound no task of the ledger begins. `limit` is how many seconds a row may lag.
    """
    checkpoints = list((yield from read_ledgers()).values())
    if not any(one.nonce for one in checkpoints):
        return []
    dirty, most, waited, stuck = WriteBackBacklog.of(checkpoints)
    behind = plural(
        dirty,
        "row of the ledger does not know yet what happened to its task",
        "rows of the ledger do not know yet what happened to their tasks",
    )
    # The bound is that of each partition.
    bound = f"{MOST_DIRTY:,} in one partition" if len(checkpoints) > 1 else f"{MOST_DIRTY:,}"
    if most > MOST_DIRTY:
        return [error("write-back", f"{behind}: beyond {bound} none begins", _LEDGER_LISTEN)]
    if most > MANY_DIRTY:
        return [warning("write-back", f"{behind}; beyond {bound} none begins", _LEDGER_LISTEN)]
    if waited is not None and waited > limit:
        return [
            warning("write-back", f"{behind}, the first for {human(round(waited))}", _LEDGER_LISTEN)
        ]
    if stuck:
        rows = plural(stuck, "row", "rows")
        message = f"{rows} of the ledger could not be written: refused, or locked for long"
        return [warning("write-back", message, "the log of the listeners says which, and why")]
    return [ok("write-back", "rows of the ledger know what happened to their tasks")]


# The checks of a probe: whether listeners are at work, and due tasks begin.

OVERDUE_LIMIT = 30.0
"""Seconds that a due task may wait before it is reported."""


def check_health(
    database: Database,
    settings: Settings,
    *,
    limit: float | None = OVERDUE_LIMIT,
    here: bool = False,
) -> Steps[list[Finding]]:
    """The checks of a probe: whether listeners are alive and subscribed, and start due tasks.

    `limit` is how many seconds a due task, and a row of a ledger, may wait; with None, that is not
    checked. `here` requires a listener on this machine.
    `settings` are those with which the listeners were started. Partitions that do not answer are
    left out.
    """
    health = yield from inspection.read_health(settings.lease)
    known = yield from fleet.read_fleet(settings.lease)
    findings = [check_listeners(health, known, here=here)]
    if limit is not None:
        findings.append(check_overdue(health, limit))
    if health.listeners:
        subscriptions = check_subscriptions(database, settings.doorbell, health, here=here)
        findings.append((yield from subscriptions))
    if limit is not None:
        findings += yield from check_dirty(limit)
    return findings


def check_left_out(left_out: Sequence[LeftOut], *, here: bool = False) -> list[Finding]:
    """Which partitions could not be asked. With `here` that is no fault: none of this machine's."""
    told = [f"not asked: {text}" for text in texts_of(left_out)]
    if here:
        return [ok("partitions", each) for each in told]
    return [error("partitions", each, "redis-cli --cluster check HOST:PORT") for each in told]


# The check of a move: whether the command still runs.

LEFT_AFTER = 15.0
"""Seconds without a batch after which a move counts as stopped: a running one waits less."""


def check_move(lease: float) -> Steps[Finding | None]:
    """The progress of a move of this database; None if there is none."""
    return of_move((yield from looking.count(lease)))


def of_move(counts: Counts) -> Finding | None:
    """The same, of counts that are known."""
    moving = counts.moving
    if moving is None:
        return None
    idle = "" if moving.idle is None else human(round(moving.idle))
    if not moving.leaves:
        return ok("move", f"tasks arrive {moving.way}" + (f", the last {idle} ago" if idle else ""))
    tasks = counts.unfinished + counts.failed + counts.succeeded
    left = tasks + moving.series
    if not left and not moving.on_their_way:
        return ok("move", f"all was moved {moving.way}")
    told = f"{plural(left, 'task or series is', 'tasks and series are')} left here"
    if moving.on_their_way:
        travelling = plural(moving.on_their_way, "is", "are")
        told += f", and {travelling} in transit, where nobody can run them"
    if moving.idle is None or moving.idle < LEFT_AFTER:
        return ok("move", f"goes on, {moving.way}: {told}")
    return warning(
        "move",
        f"stopped half-way, {moving.way}: no command has continued it for {idle}; {told}",
        "expirebridge move --to URL: the command that began it continues it",
    )


# The checks of overwritten keys, and of what else is in a database with several partitions.


def check_others_data(layout: PartitionLayout) -> Steps[Finding]:
    """Check whether a server also holds other data: in a cluster, each node has keys of its own."""
    _, names = yield from reconciling.walk(BEGINNING, SAMPLE)
    alien = sum(not _is_ours(name, layout) for name in names)
    return other_data(alien) if alien else ok("data", "no other data")


def check_overwritten(layout: PartitionLayout) -> Steps[list[Finding]]:
    """Check whether another client overwrote keys of ours, in each partition that answers."""
    names = list[str]()
    for number in range(layout.count):
        found = yield from at_if_available(inspection.find_overwritten(), number, fail_fast=True)
        names += found or []
    return [overwritten(names)] if names else []


def overwritten(names: list[str]) -> Finding:
    """The finding about our keys that another client overwrote."""
    return error(
        "data",
        f"another client overwrote {first_of(names)}: what needs that fails",
        f"DEL {names[0]}; then restart the listeners, whose scan finds the tasks again",
    )


def _is_ours(name: bytes, layout: PartitionLayout) -> bool:
    """True if a key is of any partition, or looks like a task's: those are looked for apart."""
    prefix = layout.prefix.encode() + b":"
    tag, _, rest = name.partition(b"}")
    if name.startswith(prefix) or (tag.startswith(b"{") and rest.startswith(prefix)):
        return True
    try:
        return parse_key(name) is not None
    except InvalidKey:
        return True


# The check of the functions that clients in other languages call: each node needs them.

_NONE = ""


def check_library(found: dict[str, str | None]) -> list[Finding]:
    """Check that the given servers have the functions of this version, or that none has any.

    `found` is the version at each, by its address: "" without functions, None if it cannot have
    any. The address of a server that is the only one is "".
    """
    versions = {node: version for node, version in found.items() if version is not None}
    if not any(versions.values()):
        return []
    mine = function_library.version()
    others = dict[str, list[str]]()
    for node, version in versions.items():
        if version != mine:
            others.setdefault(version, []).append(node)
    if not others:
        return [ok("library", f"the functions of expirebridge {mine}{_at_all(versions)}")]
    told = "; ".join(_told(version, nodes) for version, nodes in others.items())
    newest = any(function_library.is_newer(version, mine) for version in others)
    return [
        warning(
            "library",
            f"functions for other languages: {told}; this is {mine}",
            "expirebridge functions load" + (", with the newest expirebridge" if newest else ""),
        )
    ]


def _told(version: str, nodes: list[str]) -> str:
    what = "none" if version == _NONE else f"those of version {version}"
    return f"{what} at {', '.join(nodes)}" if nodes != [""] else what


def _at_all(versions: dict[str, str]) -> str:
    return f" at all {len(versions)} nodes" if "" not in versions else ""
