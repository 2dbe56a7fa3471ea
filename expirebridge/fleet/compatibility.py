"""Compares tasks with a registry: which of them would fail if that code ran them, and why.

Nothing that comes from the server is imported or called: a function's name is looked up, and the
arguments are held against its signature.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from expirebridge.handlers.call_signature import is_read_through
from expirebridge.handlers.definition import Handler
from expirebridge.handlers.registry import Registry
from expirebridge.handlers.signatures import Shape
from expirebridge.task.calls.inspection import StoredCall
from expirebridge.task.keys import decode_args, is_hidden

EXAMPLES = 3
"""How many ids are kept of each group."""
MAX_CHARACTERS = 4 * 1024 * 1024
"""How many characters the names of all groups may have. Beyond that, groups are summed up: other
clients can write a million names, and the memory is to be bounded."""
SUGGESTIONS = 100
"""For how many groups the nearest name is looked for, which takes milliseconds."""
_GROUP = 500
"""The memory of a group, without its names."""


class Verdict(StrEnum):
    """The fate of waiting tasks under new code."""

    FITS = "fits"
    UNCHECKED = "unchecked"  # Python cannot tell the function's signature
    UNKNOWN_FUNCTION = "unknown function"
    ARGUMENTS_DO_NOT_FIT = "arguments do not fit"
    ARGUMENTS_UNREADABLE = "arguments unreadable"
    RECORD_UNREADABLE = "record unreadable"

    @property
    def fails(self) -> bool:
        """True if the tasks would fail."""
        return self not in {Verdict.FITS, Verdict.UNCHECKED}


class Arguments(NamedTuple):
    """The shape of a call: the number of positional arguments, and the names of the others."""

    positional: int
    keywords: tuple[str, ...]


_HIDDEN = Arguments(-1, ())
"""Stands for arguments that a codec encoded, or that are sealed: they may fit."""


@dataclass(slots=True, kw_only=True)
class AlikeTasks:
    """Tasks of one function, whose arguments are alike."""

    verdict: Verdict
    func: str | None
    """None if the record cannot be read, or if groups of unknown functions are summed up."""
    on_signal: str | None = None
    """What they run instead if they are signalled; None if they cannot be, or are summed up."""
    arguments: Arguments | None
    """None if they cannot be read, or if groups are summed up."""
    hidden: bool = False
    """True if they are encoded or sealed."""
    reason: str
    """Why they would fail; empty if they would not."""
    count: int = 0
    first_due: int | None = None
    """The earliest due time, in ms; None if all are paused or failed."""
    ids: list[str] = field(default_factory=list)
    """Some of them, as examples."""

    def add(self, call: StoredCall) -> None:
        """Count a task."""
        self.count += 1
        if call.due is not None and (self.first_due is None or call.due < self.first_due):
            self.first_due = call.due
        if len(self.ids) < EXAMPLES:
            self.ids.append(call.id)


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """Functions whose signatures do not say all, and how many of their tasks seem to fit."""

    reason: str
    functions: Sequence[str]
    count: int


class Comparison:
    """Tasks, compared with a registry one by one, and counted in groups."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._shapes: dict[str, Shape] = {}
        self._groups: dict[tuple[str | None, str | None, Arguments | None], AlikeTasks] = {}
        self._sums: dict[tuple[str | None, Verdict, bool], AlikeTasks] = {}
        self._left = MAX_CHARACTERS
        self._suggestions = SUGGESTIONS

    def add(self, call: StoredCall) -> None:
        """Compare a task."""
        arguments = None
        if call.func is not None:
            try:
                args, kwargs = decode_args(call.args)
                arguments = Arguments(len(args), tuple(sorted(kwargs)))
            except ValueError:
                arguments = _HIDDEN if is_hidden(call.args) else None
        group = self._groups.get((call.func, call.on_signal, arguments))
        if group is None:
            group = self._new_group(call.func, call.on_signal, arguments)
        group.add(call)

    @property
    def compared(self) -> int:
        """How many tasks were compared."""
        return sum(group.count for group in self._all())

    @property
    def failing(self) -> int:
        """How many of them would fail."""
        return sum(group.count for group in self._all() if group.verdict.fails)

    def groups(self) -> list[AlikeTasks]:
        """Return all groups: first what would fail, in the order in which it comes due."""

        def place(group: AlikeTasks) -> tuple[bool, float, str]:
            due = float("inf") if group.first_due is None else group.first_due
            return not group.verdict.fails, due, group.func or ""

        return sorted(self._all(), key=place)

    def blind_spots(self) -> list[BlindSpot]:
        """Return why tasks that seem to fit may fail, apart from types and values."""
        spots = [
            self._blind_spot("*args or **kwargs", lambda shape, _: shape.is_open),
            self._blind_spot(
                "a wrapper, compared by what it wraps",
                lambda _, handler: is_read_through(handler.function),
            ),
            self._blind_spot("no signature that can be read", lambda shape, _: not shape.known),
            self._blind_spot(
                "encoded or sealed arguments", lambda shape, _: shape.known, hidden=True
            ),
        ]
        return [spot for spot in spots if spot.count]

    def _all(self) -> Iterator[AlikeTasks]:
        yield from self._groups.values()
        yield from self._sums.values()

    def _new_group(
        self, func: str | None, on_signal: str | None, arguments: Arguments | None
    ) -> AlikeTasks:
        verdict, reason = self._judge(func, arguments)
        misfit = func
        if on_signal is not None and not verdict.fails:
            second, why = self._judge(on_signal, arguments)
            if second is not Verdict.FITS:
                verdict, reason, misfit = second, _of_second(on_signal, second, why), on_signal
        names = (func or "", on_signal or "", *(arguments.keywords if arguments else ()))
        self._left -= _GROUP + sum(map(len, names))
        hidden = arguments is _HIDDEN
        if self._left >= 0:
            if verdict is Verdict.UNKNOWN_FUNCTION and misfit is not None and self._suggestions:
                self._suggestions -= 1
                reason += self._registry.suggest(misfit)
            group = AlikeTasks(
                verdict=verdict, func=func, on_signal=on_signal,
                arguments=None if hidden else arguments, hidden=hidden, reason=reason,
            )  # fmt: skip
            return self._groups.setdefault((func, on_signal, arguments), group)
        known = func if func is not None and self._registry.find(func) is not None else None
        summed = AlikeTasks(
            verdict=verdict, func=known, arguments=None, hidden=hidden,
            reason=f"{verdict}, of many kinds",
        )  # fmt: skip
        return self._sums.setdefault((known, verdict, hidden), summed)

    def _judge(self, func: str | None, arguments: Arguments | None) -> tuple[Verdict, str]:
        """Return the verdict on calls of this function and this shape, and the reason."""
        if func is None:
            return Verdict.RECORD_UNREADABLE, "its record cannot be read"
        handler = self._registry.find(func)
        if handler is None:
            return Verdict.UNKNOWN_FUNCTION, "no handler has this name"
        if arguments is None:
            return Verdict.ARGUMENTS_UNREADABLE, "its arguments cannot be read"
        shape = self._shape(func, handler)
        if not shape.known or arguments is _HIDDEN:
            return Verdict.UNCHECKED, ""
        misfit = shape.fits(*arguments)
        if misfit is not None:
            return Verdict.ARGUMENTS_DO_NOT_FIT, f"{func}{shape}: {misfit}"
        return Verdict.FITS, ""

    def _shape(self, func: str, handler: Handler) -> Shape:
        if func not in self._shapes:
            self._shapes[func] = Shape.of(handler.function)
        return self._shapes[func]

    def _blind_spot(
        self, reason: str, is_blind: Callable[[Shape, Handler], bool], *, hidden: bool = False
    ) -> BlindSpot:
        """Count the tasks of the functions that are blind, or those with `hidden` arguments."""
        functions, count = set[str](), 0
        for group in self._all():
            if group.verdict.fails or (hidden and not group.hidden):
                continue
            blind = {
                name
                for name in (group.func, group.on_signal)
                if name is not None
                and (handler := self._registry.find(name)) is not None
                and is_blind(self._shape(name, handler), handler)
            }
            functions |= blind
            count += group.count if blind else 0
        return BlindSpot(reason, sorted(functions), count)


def _of_second(func: str, verdict: Verdict, reason: str) -> str:
    """Why tasks would fail that fit their function, but not that of their signal."""
    named = f"{func}: {reason}" if verdict is Verdict.UNKNOWN_FUNCTION else reason
    return f"on a signal: {named}" if reason else ""
