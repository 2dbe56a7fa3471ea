"""What is done about a new task whose function no listener knows."""

import logging
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

from expirebridge.errors import InvalidSetting, InvalidTask, ScriptFailed
from expirebridge.log_fields import event
from expirebridge.store import calls
from expirebridge.store.calls import Steps

if TYPE_CHECKING:
    from expirebridge.handlers.known import KnownFunctions

logger = logging.getLogger("expirebridge")

UnknownFunction = Literal["off", "warn", "refuse"]

BELIEVED_FOR = 10.0
"""For how many seconds a known function is believed to be known still."""
DOUBTED_AFTER = 1.0
"""After how many seconds the listeners are asked again about an unknown one: a deploy may be on."""


class UnknownFunctions:
    """Warns of functions that no listener knows, or refuses them.

    What the listeners know is read at most once a second, and once in ten seconds while all
    functions are known. Nothing is refused unless each listener that beats says what it knows, and
    the login may read it.
    """

    def __init__(self, policy: UnknownFunction, *, lease: float) -> None:
        if policy not in get_args(UnknownFunction):
            raise InvalidSetting(
                f"unknown={policy!r}: one of {', '.join(get_args(UnknownFunction))}"
            )
        self.is_on = policy != "off"
        self._refuses = policy == "refuse"
        self._lease = lease
        self._known: KnownFunctions | None = None
        self._read_at = -math.inf
        self._warned: set[str] = set()

    def check(self, funcs: Iterable[str]) -> Steps[None]:
        """Look at the functions of tasks that are to be made.

        Raises InvalidTask for one that is refused.
        """
        named = dict.fromkeys(funcs)
        known = yield from self._read(BELIEVED_FOR)
        if not known.lacking(named):
            return
        known = yield from self._read(DOUBTED_AFTER)
        for func, lack in known.lacking(named).items():
            if self._refuses and known.all_tell:
                raise InvalidTask(f"func={func!r}: {lack}")
            self._warn(func, lack)

    def _read(self, believed_for: float) -> Steps["KnownFunctions"]:
        from expirebridge.handlers.known import KnownFunctions  # noqa: PLC0415 - if asked for

        if self._known is None or time.monotonic() - self._read_at >= believed_for:
            try:
                known = KnownFunctions.of((yield from calls.read_fleet(self._lease)))
            except ScriptFailed:
                known = KnownFunctions()
            if known != self._known:
                self._warned.clear()
            self._known, self._read_at = known, time.monotonic()
        return self._known

    def _warn(self, func: str, lack: str) -> None:
        """Say it once for each function, until the listeners know something else."""
        if func not in self._warned:
            self._warned.add(func)
            logger.warning("%s: %s", func, lack, extra=event("unknown function", func=func))
