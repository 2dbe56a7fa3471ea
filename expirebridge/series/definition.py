"""Puts series: makes them, or changes them, each with its next tick."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from expirebridge.errors import InvalidTask, SeriesDeclared
from expirebridge.series import calls as series_commands
from expirebridge.series.calls import DeclarationState, Put, Putting
from expirebridge.series.records import new_series
from expirebridge.series.schedule import SeriesSpec, check_series_id, schedule_of
from expirebridge.series.ticks import first_after
from expirebridge.series.values import Series, SeriesOutcome
from expirebridge.settings import HandlersPlace, Settings
from expirebridge.task.argument_writer import ArgumentWriter
from expirebridge.task.calls.call import Steps, chunks
from expirebridge.task.keywords import advice_on
from expirebridge.task.new_task import Func, call_of, is_private
from expirebridge.task.options import PolicyOptions
from expirebridge.task.policies import policy_fields
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

_OUTCOMES = {
    Put.CREATED: SeriesOutcome.CREATED,
    Put.CHANGED: SeriesOutcome.CHANGED,
    Put.UNCHANGED: SeriesOutcome.UNCHANGED,
}


def spec_from(
    place: HandlersPlace,
    writer: ArgumentWriter,
    /,
    id: str,
    func: Func,
    args: Sequence[Any] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> SeriesSpec:
    """Check the arguments of `schedule`: policies, and what says when it has its ticks."""
    name, encoded = call_of(place, func, args, kwargs)
    if is_private(func) and not writer.seals:
        raise InvalidTask(
            f"func={name!r}: the ticks of a series keep private arguments out of their keys' names "
            "only if they are sealed: give keys (EXPIREBRIDGE_KEYS)"
        )
    policies = {one: options.pop(one) for one in PolicyOptions.__optional_keys__ & options.keys()}
    return SeriesSpec(
        id=check_series_id(id),
        func=name,
        args=writer.sealed(encoded, id, name),
        schedule=schedule_of(**options),
        fields=policy_fields(**policies),
    )


def checked_spec(
    place: HandlersPlace, writer: ArgumentWriter, position: int, item: Mapping[str, Any]
) -> SeriesSpec:
    """Check one of many series. An error names its position."""
    if not isinstance(item, Mapping):
        raise InvalidTask(f"series {position}: give a mapping of schedule's arguments")
    try:
        return spec_from(place, writer, **item)
    except (InvalidTask, TypeError) as error:
        reason = re.sub(r"\b(spec_from|schedule_of)\(\) ", "", str(error))
        takers = spec_from, schedule_of, policy_fields
        advice = advice_on(error, *takers) if isinstance(error, TypeError) else ""
        raise InvalidTask(f"series {position}: {reason}{advice}") from error


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
    before = b"" if standing is None else standing.record.get("fingerprint", b"")
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
                    new_series(spec, declared=False), b"", now,
                    first_after(spec.schedule, spec.id, now, made=now),
                )
                for spec in specs
            ]
        )
    )  # fmt: skip


def put_scheduled(spec: SeriesSpec, settings: Settings) -> Steps[Series]:
    """Put a series for a producer, until nothing comes in between. Raises SeriesDeclared."""
    while True:
        read = yield from series_commands.get_series(spec.id, settings.lease)
        if read.series is not None and "declared" in read.series.record:
            raise SeriesDeclared(spec.id)
        outcome = _OUTCOMES.get((yield from put(spec, read, declared=False)))
        if outcome is None:  # the time of its first tick passed, or another was faster
            continue
        after = yield from series_commands.get_series(spec.id, settings.lease)
        if after.series is not None:
            key_ring = settings.key_ring
            return Series.of(after.series, after.now, outcome=outcome, key_ring=key_ring)


def put_many_scheduled(
    specs: Sequence[SeriesSpec], settings: Settings
) -> Steps[list[SeriesOutcome]]:
    """Put those that are new in chunks, the others one by one."""
    outcomes: list[SeriesOutcome] = []
    for chunk in chunks(specs, series_commands.MAX_TICKS):
        done = yield from put_new(chunk, lease=settings.lease)
        for spec, code in zip(chunk, done, strict=True):
            outcome = _OUTCOMES.get(code)
            if outcome is None:  # there is one of its id already
                outcome = (yield from put_scheduled(spec, settings)).outcome
                assert outcome is not None  # noqa: S101 - for the type checker
            outcomes.append(outcome)
    return outcomes


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
