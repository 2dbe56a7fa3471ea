"""Puts series: makes them, or changes them, each with its next tick."""

import logging
from collections.abc import Sequence

from expirebridge.series import calls as series_commands
from expirebridge.series.calls import DeclarationState, Put, Putting
from expirebridge.series.records import new_series
from expirebridge.series.schedule import SeriesSpec
from expirebridge.series.ticks import first_after
from expirebridge.task.calls.call import Steps
from expirebridge.task.log_fields import event

logger = logging.getLogger("expirebridge")


def put(
    spec: SeriesSpec, read: series_commands.Read, *, declared: bool, made: int | None = None
) -> Steps[Put]:
    """Put a series in the place of what was read, with the first tick after that.

    `made` is when a new one counts as made, in ms; now, if that is not given.

    Returns RACE if it changed since, and LATE if its first tick has passed: read it again then.
    """
    standing = read.series
    if standing is not None:
        made = standing.whole("made")
    made = made or read.now
    times = first_after(spec.schedule, spec.id, read.now, made=made)
    before = "" if standing is None else standing.text("fingerprint")
    item = Putting(new_series(spec, declared=declared), before, made, times)
    [done] = yield from series_commands.put_series([item])
    return done


def put_new(specs: Sequence[SeriesSpec], *, lease: float) -> Steps[list[Put]]:
    """Put series that are thought to be new, with one request.

    Returns RACE for one whose id has another series, and LATE if its first tick has passed.
    """
    now = (yield from series_commands.get_series(specs[0].id, lease)).now
    return (
        yield from series_commands.put_series(
            [
                Putting(
                    new_series(spec, declared=False), "", now,
                    first_after(spec.schedule, spec.id, now, made=now),
                )
                for spec in specs
            ]
        )
    )  # fmt: skip


def restore(spec: SeriesSpec, *, made: int, paused: bool, lease: float) -> Steps[bool]:
    """Make a series as it was elsewhere, unless there is one of its id.

    Its waiting tick may be there already. Returns whether it was made.
    """
    done = Put.LATE
    while done is Put.LATE:
        read = yield from series_commands.get_series(spec.id, lease)
        if read.series is not None:
            return False
        done = yield from put(spec, read, declared=False, made=made)
    if paused:
        yield from series_commands.pause_series(spec.id)
    return done is Put.CREATED


def declare(listener: str, lease: float, specs: Sequence[SeriesSpec]) -> Steps[None]:
    """Declare the series of a listener's handlers, and store those that are new or changed.

    What another listener puts at the same time is looked at again by the next such call.
    """
    declared = yield from series_commands.declare_series(
        listener, lease, [(spec.id, spec.fingerprint) for spec in specs]
    )
    for spec, (standing, before) in zip(specs, declared.standings, strict=True):
        if standing is DeclarationState.PUT:
            yield from _put_declared(spec, before, lease)
        elif standing is DeclarationState.SCHEDULED:
            logger.error(
                "series %s is declared by %s, but a producer has scheduled one of that id, which "
                "goes on: unschedule it, or give another id",
                spec.id, spec.func, extra=event("series taken", series=spec.id, func=spec.func),
            )  # fmt: skip


def _put_declared(spec: SeriesSpec, before: str, lease: float) -> Steps[None]:
    done = Put.LATE
    while done is Put.LATE:
        read = yield from series_commands.get_series(spec.id, lease)
        standing = read.series.text("fingerprint") if read.series is not None else ""
        if standing != before:
            return
        done = yield from put(spec, read, declared=True)
    if done in {Put.CREATED, Put.CHANGED}:
        logger.info(
            "series %s: %s, %s", spec.id, done.name.lower(), spec.schedule,
            extra=event("series put", series=spec.id, done=done.name.lower()),
        )  # fmt: skip
