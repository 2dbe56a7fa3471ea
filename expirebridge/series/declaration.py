"""Declared series: what `@every` says of a function."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any, Unpack
from zoneinfo import ZoneInfo

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers.arguments import check_binding, plain_arguments
from expirebridge.handlers.definition import F, Function, Handler, Marks, is_marked, location_of
from expirebridge.handlers.definition import mark as mark_handler
from expirebridge.series.schedule import (
    Missed,
    Overlap,
    Schedule,
    SeriesSpec,
    check_series_id,
    rule_arguments,
    schedule_of,
)
from expirebridge.task import keys
from expirebridge.task.durations import Duration
from expirebridge.task.keywords import advising
from expirebridge.task.options import PolicyOptions
from expirebridge.task.policies import policy_fields

_DECLARED = "__expirebridge_every__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One `@every`, before the name of its handler is known."""

    id: str | None
    """None: it follows from the name of the handler."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    schedule: Schedule
    fields: Mapping[str, str | float]

    def series(self, declaring: Handler) -> SeriesSpec:
        """The series that this declares, if that is its handler.

        Raises InvalidTask if the handler's name is no id, or if the arguments do not fit it.
        """
        check_binding(declaring.function, self.args, self.kwargs)
        args, kwargs = plain_arguments(declaring.function, self.args, self.kwargs)
        return SeriesSpec(
            id=check_series_id(_id_for(declaring.name)) if self.id is None else self.id,
            func=declaring.name,
            args=keys.encode_args(args, kwargs),
            schedule=self.schedule,
            fields=self.fields,
        )


@advising
def every(
    when: Duration,
    /,
    *,
    id: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    tz: str | ZoneInfo | None = None,
    jitter: Duration | None = None,
    start: datetime | None = None,
    until: datetime | None = None,
    missed: Missed = "latest",
    overlap: Overlap = "skip",
    **policies: Unpack[PolicyOptions],
) -> Callable[[F], F]:
    """Mark a function as a handler that runs again and again: declare a series.

    `when` is a cron expression of five fields or a name such as `@daily`, in the time zone `tz`
    (an IANA name; UTC, unless given); or an interval: seconds, a timedelta, or text such as "15m",
    at least a second. Intervals count from `start`, or from when the series was first made.

    `id` names the series; without it, the name of the handler does, with `.` in place of `/`. A
    function can have several series, with different ids. `args` and `kwargs` are what it is called
    with, as in `make_task`.

    Between `start` and `until`, aware datetimes, there are ticks; at both there may be one.
    `jitter` puts each tick of this series off by the same time, which is shorter than `jitter` and
    follows from the id. `missed` is what becomes of a tick that nobody ran before the next one was
    due: with "latest" only the latest of them runs, with "skip" none does. `overlap` is what
    happens if a tick still runs when the next one is due: "skip" leaves that out, "allow" runs
    both.

    The others are those of `make_task`. They hold for the ticks of this series, and go before what
    `@handler` says. The order of the decorators does not matter.

    Raises InvalidTask for values that cannot be. What only shows when the handlers are loaded
    raises HandlersError there: arguments that do not fit the function, or an id that two different
    series have.
    """
    keys.check_given(args, kwargs)
    declaration = Declaration(
        id=None if id is None else check_series_id(id),
        args=list(args),
        kwargs=dict(kwargs or {}),
        schedule=schedule_of(
            **_rule_arguments(when), tz=tz, jitter=jitter, start=start, until=until,
            missed=missed, overlap=overlap,
        ),
        fields=policy_fields(**policies),
    )  # fmt: skip

    def mark(marked: F) -> F:
        if not inspect.isfunction(marked):
            raise InvalidTask(f"@every marks {marked!r}, which is not a function")
        setattr(marked, _DECLARED, (*declarations(marked), declaration))
        return marked if is_marked(marked) else mark_handler(marked, Marks())

    return mark


def declarations(function: Function) -> tuple[Declaration, ...]:
    """Return the `@every` marks of a function."""
    found: tuple[Declaration, ...] = getattr(function, _DECLARED, ())
    return found


def declared(handlers: Iterable[Handler]) -> tuple[SeriesSpec, ...]:
    """Return the series that handlers declare, by id.

    Raises HandlersError if two different ones have one id, or one cannot be.
    """
    found: dict[str, tuple[SeriesSpec, Handler]] = {}
    for declaring in _declaring(handlers):
        for declaration in declarations(declaring.function):
            try:
                series = declaration.series(declaring)
            except InvalidTask as error:
                raise HandlersError(f"{declaring.location}: @every: {error}") from None
            other, owner = found.setdefault(series.id, (series, declaring))
            if other != series:
                raise HandlersError(_conflict(series, declaring, other, owner))
    return tuple(series for _, (series, _) in sorted(found.items()))


def refuse_lost(modules: Iterable[ModuleType], handlers: Iterable[Handler]) -> None:
    """Raise HandlersError if `@every` marks a function of these modules that is no handler.

    Nothing would ever run it.
    """
    registered = {one.function for one in handlers}
    for module in modules:
        for name, value in list(vars(module).items()):
            if not inspect.isfunction(value) or value.__module__ != module.__name__:
                continue
            if declarations(value) and value not in registered:
                raise HandlersError(
                    f"{location_of(name, value)}: @every marks it, but it is not a handler: only a "
                    "public function of a public module is one, and if HANDLERS is there, it must "
                    "list it"
                )


def _rule_arguments(when: Duration) -> dict[str, Any]:
    if callable(when):
        raise InvalidTask("@every: say when, such as @every('15m') or @every('30 2 * * *')")
    return rule_arguments(when)


def _declaring(handlers: Iterable[Handler]) -> Iterator[Handler]:
    """The handlers with declarations, each function once: under its own name, if it has that."""
    chosen: dict[Function, Handler] = {}
    for one in sorted(handlers, key=lambda one: one.name):
        if not declarations(one.function):
            continue
        first = chosen.setdefault(one.function, one)
        own_name = one.function.__name__
        if first.name.rpartition(".")[2] != own_name == one.name.rpartition(".")[2]:
            chosen[one.function] = one
    yield from chosen.values()


def _id_for(name: str) -> str:
    """The id of a series without one: no other handler has the same."""
    return name.replace("/", ".")


def _conflict(series: SeriesSpec, declaring: Handler, other: SeriesSpec, owner: Handler) -> str:
    if declaring is owner:
        return (
            f"{declaring.location}: two @every have the id {series.id!r}: {other.schedule} and "
            f"{series.schedule}. Give each an id of its own"
        )
    return (
        f"the id {series.id!r} is declared twice: by {owner.location}, {other.schedule}; and by "
        f"{declaring.location}, {series.schedule}. Give one of them another id"
    )
