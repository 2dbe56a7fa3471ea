"""Checks whether series make their ticks, and listeners declare those of handlers."""

import shlex
from collections.abc import Sequence

from expirebridge.checks.finding import Check, Finding, error, first_of, if_any, ok, warning
from expirebridge.series.calls import series_page
from expirebridge.series.values import BEHIND, Series
from expirebridge.settings import Settings
from expirebridge.task.calls import looking
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.pages import Pages
from expirebridge.task.task import from_ms
from expirebridge.task.texts import plural

_SAMPLE = 1000


def checks(settings: Settings, _max_overdue: float) -> Sequence[Check]:
    """Give what the doctor checks."""
    return [Check(order=30, name="series", look=if_any(check_series(settings.lease)))]


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
    orphans = [one.id for one in series if one.declared and not one.carriers and counts.listeners]
    idle = [one.id for one in series if _never_ran(one, now)]
    if fault := fault_of_ticks("series", series, "expirebridge listen --tasks FOLDER"):
        return fault
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
    return all_tick("series", series)


def fault_of_ticks(check: str, series: Sequence[Series], listen: str) -> Finding | None:
    """What keeps series from having their next ticks, wherever they are; None if all have them.

    `listen` starts the listeners that make the ticks.
    """
    broken = [one.id for one in series if one.schedule is None]
    behind = [one.id for one in series if one.is_behind(BEHIND)]
    if broken:
        return error(
            check, f"the schedule of {first_of(broken)} cannot be read: no more ticks are made",
            f"expirebridge series show {shlex.quote(broken[0])}",
        )  # fmt: skip
    if behind:
        message = f"the next tick was not made in time of {first_of(behind)}"
        return warning(check, message, f"{listen}: listeners make the ticks")
    return None


def all_tick(check: str, series: Sequence[Series]) -> Finding:
    """The finding if nothing is wrong."""
    return ok(check, plural(len(series), "series has its next tick", "series have their ticks"))


def _never_ran(series: Series, now: int) -> bool:
    """True if no tick ever began, although one was due long enough ago to have been retaken."""
    if series.last is not None or series.paused is not None or series.created is None:
        return False
    first = series.coming(1, series.created)
    return bool(first) and (from_ms(now) - first[0]).total_seconds() > BEHIND
