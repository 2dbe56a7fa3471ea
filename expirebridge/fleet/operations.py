"""What the operations ask the fleet: whether it knows a function, and takes its arguments."""

import contextlib
import logging
import math
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from expirebridge import handlers
from expirebridge.errors import InvalidTask, ScriptFailed, ServerError
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings
from expirebridge.task import keys
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.fleet import Fleet, read_fleet
from expirebridge.task.operations.base import UnknownFunction
from expirebridge.task.operations.editing import EditingOperations
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

BELIEVED_FOR = 10.0
"""Seconds for which the answer about a known function is cached."""
DOUBTED_AFTER = 1.0
"""After how many seconds the listeners are asked again about an unknown one: a deploy may be on."""
SILENT_FOR = 60.0
"""Seconds for which listeners are not asked again if none reported its functions."""
MOST_NAMES = 1000
"""About how many functions a process asks the listeners, at most."""


# The functions that live listeners have registered, as far as they report them.


class KnownFunctions(NamedTuple):
    """The functions that the listeners of a fleet have."""

    names: frozenset[str] = frozenset()
    telling: int = 0
    """How many listeners declare their functions."""
    silent: int = 0
    """How many do not, since another client overwrote what they declared."""

    @classmethod
    def of(cls, fleet: Fleet) -> Self:
        """Collect the functions of a fleet."""
        codes = fleet.believed
        telling = sum(listener.fingerprint in codes for listener in fleet.listeners)
        return cls(
            frozenset(name for shapes in codes.values() for name in shapes),
            telling,
            len(fleet.listeners) - telling,
        )

    @property
    def all_tell(self) -> bool:
        """True if a function that is not among the names is certainly unknown."""
        return self.telling > 0 and not self.silent

    def why_unknown(self, func: str) -> str | None:
        """Return what to say of a function that is not known, with the nearest name.

        None if a listener has it, or if none reports its functions.
        """
        if func in self.names or not self.telling:
            return None
        near = handlers.suggestion(func, self.names)
        if self.silent:
            total = self.telling + self.silent
            return (
                f"{self.telling} of {total} listeners do not know it{near}, the others do not say"
            )
        return f"no listener knows it{near}"

    def unknown(self, funcs: Iterable[str]) -> dict[str, str]:
        """Return those of the functions that no listener knows, each with what to say of it."""
        return {func: why for func in funcs if (why := self.why_unknown(func)) is not None}


# Those about which a process asks.


class Asked:
    """The functions that this process has looked up at the listeners of a database."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.next_at = -math.inf
        """The next time to ask, on the monotonic clock, if no listener reported its functions."""

    def not_asked(self, funcs: Iterable[str]) -> set[str]:
        """The functions about which to ask now."""
        new = set(funcs) - self.names
        if not new or len(self.names) >= MOST_NAMES or time.monotonic() < self.next_at:
            return set()
        return new


asked_of: dict[tuple[str, str], Asked] = {}
"""By URL and prefix: a program may open a bridge for each request."""


class UnknownFunctions:
    """Warns of functions that no listener has, or refuses them.

    To warn, the listeners are asked once about each function, when its first task has been made.
    To refuse, their functions are read at most once a second, and once in ten seconds while all
    are known. Nothing is refused unless each live listener reports its functions, and the login may
    read them.
    """

    def __init__(self, policy: UnknownFunction, settings: Settings) -> None:
        self.refuses = policy == "refuse"
        self.warns = policy == "warn"
        self._lease = settings.lease
        self._known: KnownFunctions | None = None
        self._read_at = -math.inf
        self._warned: set[str] = set()
        self._asked = asked_of.setdefault((settings.url, settings.prefix), Asked())

    def check(self, funcs: Iterable[str]) -> Steps[None]:
        """Look at the functions of tasks that are to be made.

        Raises InvalidTask for one that is refused.
        """
        named = dict.fromkeys(funcs)
        known = yield from self._read(BELIEVED_FOR)
        if not known.unknown(named):
            return
        known = yield from self._read(DOUBTED_AFTER)
        for func, why in known.unknown(named).items():
            if known.all_tell:
                raise InvalidTask(f"func={func!r}: {why}")
            if func not in self._warned:
                self._warned.add(func)
                _warn(func, why)

    def new_among(self, funcs: Iterable[str]) -> set[str]:
        """Those of these functions about which the listeners would be asked now."""
        return self._asked.not_asked(funcs)

    def warn(self, funcs: Iterable[str]) -> Steps[None]:
        """Warn of the functions of tasks that were made, each once in this process.

        The tasks are made: if the listeners cannot be asked, nothing is said.
        """
        asked = self._asked
        new = asked.not_asked(funcs)
        if not new:
            return
        asked.names |= new  # meanwhile another thread asks only about others
        known = KnownFunctions()
        try:
            with contextlib.suppress(ServerError):
                known = yield from _read_known(self._lease)
        finally:
            if not known.telling:
                asked.names -= new
                asked.next_at = time.monotonic() + SILENT_FOR
        for func, why in known.unknown(sorted(new)).items():
            _warn(func, why)

    def _read(self, believed_for: float) -> Steps[KnownFunctions]:
        if self._known is None or time.monotonic() - self._read_at >= believed_for:
            try:
                known = yield from _read_known(self._lease)
            except ScriptFailed:
                known = KnownFunctions()
            if known != self._known:
                self._warned.clear()
            self._known, self._read_at = known, time.monotonic()
        return self._known


def _read_known(lease: float) -> Steps[KnownFunctions]:
    return KnownFunctions.of((yield from read_fleet(lease)))


def _warn(func: str, why: str) -> None:
    logger.warning("%s: %s", func, why, extra=event("unknown function", func=func))


class FleetOperations(EditingOperations):
    """Holds new tasks, and new arguments, against what the listeners know."""

    def __init__(
        self, settings: Settings, hooks: Hooks, *, unknown: UnknownFunction = "off"
    ) -> None:
        super().__init__(settings, hooks, unknown=unknown)
        self._unknown_functions = UnknownFunctions(unknown, settings)

    def _before_making(self, funcs: Iterable[str]) -> Steps[None]:
        if self._unknown_functions.refuses:
            yield from self._unknown_functions.check(funcs)

    def _after_making(self, funcs: Iterable[str]) -> Steps[None]:
        if self._unknown_functions.warns:
            yield from self._unknown_functions.warn(funcs)

    def _is_checked(self, func: str, encoded: bytes) -> Steps[bool]:
        """Hold arguments against the signatures of the fleet; False if no listener declares one.

        While several codes run, one that takes them is enough: the others leave the task to it.
        Raises InvalidTask if none does.
        """
        try:
            known = yield from read_fleet(self._settings.lease)
        except ScriptFailed:
            return False
        shapes = {shapes[func] for shapes in known.believed.values() if func in shapes}
        return _fit_one(func, sorted(shapes), encoded)


def _fit_one(func: str, shapes: Sequence[str], encoded: bytes) -> bool:
    """True if arguments fit one of these signatures; False if none of them can be read."""
    args, kwargs = keys.decode_args(encoded)
    misfits, is_known = [], True
    for text in shapes:
        try:
            shape = handlers.Shape.read(text)
        except ValueError:  # another client wrote it
            is_known = False
            continue
        misfit = shape.fits(len(args), kwargs)
        if shape.known and misfit is None:
            return True
        is_known = is_known and shape.known
        misfits.append(f"{func}{shape}: {misfit}")
    if misfits and is_known:
        raise InvalidTask(f"the arguments do not fit: {'; '.join(misfits)}")
    return False
