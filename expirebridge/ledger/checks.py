"""The checks of a ledger, beside those of the server: what is wrong, and how to fix it."""

import shlex
import time
from collections.abc import Callable, Mapping

from expirebridge.checks import OVERDUE_LIMIT, Finding
from expirebridge.checks.finding import error, ok, warning
from expirebridge.checks.work import BEHIND, first_of
from expirebridge.errors import LedgerError, LedgerUnreachable, LedgerUnsuitable
from expirebridge.ledger.addresses import place_of
from expirebridge.ledger.binding import Met, Seen, check_numbers, check_partitions, check_sides
from expirebridge.ledger.engine import read_url
from expirebridge.ledger.inspection import MOST, Auditor, LedgerFigures
from expirebridge.model.durations import human
from expirebridge.settings import Settings
from expirebridge.store.commands.ledger import RedisCheckpoint

TRIES, PAUSE = 3, 0.1
MOST_SERIES = 1000
_LISTEN = "start a listener with this ledger, or read the log of those that have it"
_REFUSED = "SELECT id, message FROM delay_queue WHERE message LIKE 'refused: %'"


def check_ledger(
    settings: Settings,
    ask: Callable[[], Mapping[int, RedisCheckpoint]],
    *,
    writes: bool = False,
    limit: float = OVERDUE_LIMIT,
) -> list[Finding]:
    """Whether the ledger of these settings can be used, and is kept up with.

    `ask` asks each partition of the server what it knows of its ledger, and which process it is. A
    row may wait `limit` seconds. With `writes` it is tried whether the database takes writes.
    """
    auditor = Auditor(settings)
    try:
        figures = _look(auditor, ask)
        if figures.accounts:
            _check_binding(figures, settings, auditor.identity())
        if writes:
            auditor.try_to_write()
    except LedgerUnreachable as failure:
        return [error("ledger", str(failure), "tasks of the ledger wait until it answers")]
    except LedgerUnsuitable as failure:
        return [error("ledger", str(failure), "")]
    except LedgerError as failure:
        return [error("ledger", str(failure), "the relay reads and writes its tables")]
    return _findings(figures, limit)


def _check_binding(figures: LedgerFigures, settings: Settings, identity: str) -> None:
    """Raise LedgerUnsuitable as the relay does for what is not bound to each other."""
    count = max(figures.partitions, max(figures.known, default=0) + 1)
    place = place_of(settings, read_url(settings.ledger or ""), count)
    for partition, known in figures.known.items():
        if (account := figures.accounts.get(partition)) is not None:
            met = Met.read(account.met)
            check_partitions(met, count)
            check_numbers(account, known)
            # A dashboard may not ask for it. Spelt otherwise than by the listeners, this could be
            # their Redis: only they can tell.
            if known.run_id is not None:
                check_sides(met, Seen(place, identity, known.run_id), known)


def check_ledger_series(settings: Settings) -> list[Finding]:
    """Whether the series of the ledger have their ticks; nothing if there is none.

    Only the first thousand are looked at. What keeps the ledger from being read is found by
    `check_ledger`.
    """
    try:
        series = Auditor(settings).series(MOST_SERIES, None).series
    except LedgerError:
        return []
    if not series:
        return []
    broken = [one.id for one in series if one.schedule is None]
    behind = [one.id for one in series if one.is_behind(BEHIND)]
    if broken:
        return [
            error(
                "ledger series",
                f"the schedule of {first_of(broken)} cannot be read: no more ticks are made",
                f"expirebridge series show {shlex.quote(broken[0])}",
            )
        ]
    if behind:
        message = f"the next tick was not made in time of {first_of(behind)}"
        return [warning("ledger series", message, f"{_LISTEN}: listeners make the ticks")]
    several = f"{len(series):,} series have their ticks"
    return [ok("ledger series", "1 series has its next tick" if len(series) == 1 else several)]


def _look(auditor: Auditor, ask: Callable[[], Mapping[int, RedisCheckpoint]]) -> LedgerFigures:
    """What both sides know; asked again if a pass may have ended between the two."""
    left = TRIES
    while True:
        left -= 1
        figures = auditor.figures(ask())
        if not left or not figures.lost or figures.to_rebuild:
            return figures
        time.sleep(PAUSE)


def _findings(figures: LedgerFigures, limit: float) -> list[Finding]:
    found = []
    if figures.oldest > limit:
        found.append(
            warning(
                "ledger",
                f"{_count(figures.to_relay)} to be carried to Redis, the first for "
                f"{human(round(figures.oldest))}",
                _LISTEN,
            )
        )
    if figures.lost:
        found.append(
            warning(
                "ledger",
                f"Redis has lost something: {_count(figures.to_rebuild)} to be carried again, and "
                "no task of the ledger is claimed meanwhile",
                _LISTEN,
            )
        )
    if figures.refused:
        found.append(
            warning(
                "ledger rows",
                f"{_count(figures.refused, 'was refused', 'were refused')} within a day",
                _REFUSED,
            )
        )
    if not found:
        stamps = [account.stamp for account in figures.accounts.values()]
        several = f" in {len(stamps)} partitions" if len(stamps) > 1 else ""
        found.append(ok("ledger", f"rows are carried; pass {max(stamps, default=0)}{several}"))
    return found


def _count(rows: int, one: str = "waits", more: str = "wait") -> str:
    many = f"{rows:,}{' or more' if rows >= MOST else ''}"
    return f"{many} {'row ' + one if rows == 1 else 'rows ' + more}"
