"""Checks of the tables of a ledger: whether they can be used, and rows are relayed in time."""

import time
from collections.abc import Callable, Mapping, Sequence

from expirebridge.checks import MAX_OVERDUE, Finding
from expirebridge.checks.finding import error, ok, warning
from expirebridge.errors import LedgerError, LedgerUnreachable, LedgerUnsuitable

# First, so that without SQLAlchemy the error is that of `expirebridge.ledger`.
from expirebridge.ledger import Ledger
from expirebridge.ledger.binding import (
    Met,
    Seen,
    check_numbers,
    check_partitions,
    check_sides,
    place_of,
)
from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.engine import connected, read_url, with_timeout
from expirebridge.ledger.figures import LedgerFigures
from expirebridge.ledger.inspection import MOST, LedgerInspector
from expirebridge.series.checks import all_tick, fault_of_ticks
from expirebridge.series.values import Series
from expirebridge.settings import Settings
from expirebridge.task.durations import human
from expirebridge.task.explaining import clock
from expirebridge.task.task import from_ms

TRIES, PAUSE = 3, 0.1
MOST_SERIES = 1000
CLOCK_SHARE = 4
"""The clocks of both databases may differ by less than this part of the horizon."""
_LISTEN = "start a listener with this ledger, or read the log of those that have it"
_HOLDS = "these wait until that transaction ends; all others go on"
_REFUSED = "SELECT id, message FROM delay_queue WHERE message LIKE 'refused: %'"


def check_ledger(
    settings: Settings,
    ask: Callable[[], Mapping[int, RedisCheckpoint]],
    *,
    writes: bool = False,
    max_overdue: float = MAX_OVERDUE,
) -> list[Finding]:
    """Check that the ledger of these settings can be used, and that rows are relayed in time.

    `ask` reads the checkpoint of each partition of the server, with its run id. A row may wait
    `max_overdue` seconds. With `writes`, the check also tries to write to the database.
    """
    inspector = LedgerInspector(settings)
    try:
        figures = _read_figures(inspector, ask)
        if figures.progress:
            _check_binding(figures, settings, inspector.identity())
        if writes:
            inspector.try_to_write()
    except LedgerUnreachable as failure:
        return [error("ledger", str(failure), "tasks of the ledger wait until it answers")]
    except LedgerUnsuitable as failure:
        return [error("ledger", str(failure), "")]
    except LedgerError as failure:
        return [error("ledger", str(failure), "the relay reads and writes its tables")]
    return _findings(figures, max_overdue)


def _check_binding(figures: LedgerFigures, settings: Settings, identity: str) -> None:
    """Raise LedgerUnsuitable as the relay does if ledger and Redis are not bound to each other."""
    count = max(figures.partitions, max(figures.checkpoints, default=0) + 1)
    place = place_of(settings, read_url(settings.ledger or ""), count)
    for partition, checkpoint in figures.checkpoints.items():
        if (progress := figures.progress.get(partition)) is not None:
            met = Met.read(progress.met)
            check_partitions(met, count)
            check_numbers(progress, checkpoint)
            # A dashboard may not read the run id. With a URL spelt otherwise than the listeners',
            # this could still be their Redis: only they can tell.
            if checkpoint.run_id is not None:
                check_sides(met, Seen(place, identity, checkpoint.run_id), checkpoint)


def check_ledger_series(settings: Settings) -> list[Finding]:
    """Check that the series of the ledger have their ticks; no finding if there is no series.

    Only the first thousand are checked. `check_ledger` reports a ledger that cannot be read.
    """
    try:
        series = with_timeout(lambda: _first_series(settings))
    except LedgerError:
        return []
    if not series:
        return []
    fault = fault_of_ticks("ledger series", series, _LISTEN)
    return [fault or all_tick("ledger series", series)]


def _first_series(settings: Settings) -> Sequence[Series]:
    url = settings.ledger or ""
    ledger = Ledger(url, name=settings.ledger_name)
    with connected(url, reads_only=True) as connection:
        return ledger.list_series(connection, limit=MOST_SERIES).series


def _read_figures(
    inspector: LedgerInspector, ask: Callable[[], Mapping[int, RedisCheckpoint]]
) -> LedgerFigures:
    """Read both sides; again if a batch may have ended between the two."""
    left = TRIES
    while True:
        left -= 1
        figures = inspector.figures(ask())
        if not left or not figures.lost or figures.to_rebuild:
            return figures
        time.sleep(PAUSE)


def _findings(figures: LedgerFigures, max_overdue: float) -> list[Finding]:
    found = _about_horizon(figures)
    if figures.oldest > max_overdue:
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
                "until then their tasks wait; all of the ledger do while these are many",
                _LISTEN,
            )
        )
    if figures.held:
        rows = "; ".join(str(each) for each in figures.held)
        found.append(warning("ledger rows", f"locked by other transactions: {rows}", _HOLDS))
    if figures.refused:
        found.append(
            warning(
                "ledger rows",
                f"{_count(figures.refused, 'was refused', 'were refused')} within a day",
                _REFUSED,
            )
        )
    if not found:
        stamps = [progress.stamp for progress in figures.progress.values()]
        several = f" in {len(stamps)} partitions" if len(stamps) > 1 else ""
        found.append(ok("ledger", f"rows are carried; pass {max(stamps, default=0)}{several}"))
    return found


def _about_horizon(figures: LedgerFigures) -> list[Finding]:
    found = []
    if figures.for_ids.count:
        found.append(
            warning(
                "ledger rows",
                f"{_count(figures.for_ids.count)} until other tasks, which are not of the ledger, "
                f"no longer have their ids, such as {figures.for_ids.example!r}",
                f"expirebridge show {figures.for_ids.example}",
            )
        )
    clocks = [from_ms(one.now) for one in figures.checkpoints.values() if one.now]
    if figures.reach.horizon is not None and clocks:
        ahead = max((figures.now - one for one in clocks), key=abs).total_seconds()
        if abs(ahead) * 1000 >= figures.reach.horizon / CLOCK_SHARE:
            way, before = ("ahead of" if ahead > 0 else "behind"), figures.reach.horizon / 1000
            found.append(
                warning(
                    "ledger clock",
                    f"the clock of SQL is {human(abs(ahead))} {way} that of Redis, and by it rows "
                    f"are brought {human(before)} before they are due",
                    "timedatectl set-ntp true  (on both machines)",
                )
            )
    return found


def check_sealed_rows(settings: Settings) -> list[Finding]:
    """Say how long the keys must be kept with which rows are sealed that are kept back.

    It looks at the 10,000 of them that are due last. `check_ledger` reports a ledger that cannot be
    read.
    """
    try:
        sealed = LedgerInspector(settings).sealed_until()
    except LedgerError:
        return []
    if not sealed.until:
        return []
    here = settings.key_ring.names if settings.key_ring is not None else frozenset[str]()
    each = [f"key {name} until {clock(until)}" for name, until in sorted(sealed.until.items())]
    scope = f", of the {MOST:,} that are due last" if sealed.is_cut else ""
    message = f"rows that are kept back need {', '.join(each)}{scope}"
    missing = sorted(set(sealed.until) - here)
    if not missing:
        return [ok("ledger keys", message)]
    lacking = f"{message}; EXPIREBRIDGE_KEYS lacks {', '.join(missing)} here"
    return [warning("ledger keys", lacking, "give listeners the key, and doctor as well")]


def _count(rows: int, one: str = "waits", more: str = "wait") -> str:
    many = f"{rows:,}{' or more' if rows >= MOST else ''}"
    return f"{many} {'row ' + one if rows == 1 else 'rows ' + more}"
