"""The watchdog: notices that a handler blocks the event loop.

An async handler that does not give way holds up all that its listener does: the other handlers,
their timeouts, the recording of outcomes, even signals. Only the heartbeat goes on, in a thread of
its own, and so it is there that the watchdog looks.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable

from expirebridge.errors import ServerError
from expirebridge.listener.runner.attempt import Attempt
from expirebridge.listener.runner.origin import Origin
from expirebridge.listener.runner.runner import Runner
from expirebridge.listener.runner.unbegun import WITHDRAWN
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store import calls

logger = logging.getLogger("expirebridge")


class Watchdog:
    """Asks the event loop for a sign of life at each heartbeat.

    If none comes for the time of a heartbeat, what blocks it is named in the log, and what was
    claimed and has not begun is released for other listeners. What has begun keeps its lease: it
    would run twice. If there is still no sign one grace time after the blocking handler's timeout,
    `on_stuck` is called, as it is for a plain function that never returns.

    All but the answer runs in the heartbeat's thread. It does not find a handler that blocks for
    less than a heartbeat, nor why it blocks.
    """

    def __init__(
        self,
        runner: Runner,
        settings: Settings,
        *,
        on_stuck: Callable[[str], None],
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._on_stuck = on_stuck
        self._patience = settings.lease / calls.BEATS_PER_LEASE
        self._asked: float | None = None
        """When the loop was asked for the sign that it still owes; None if it owes none."""
        self._warned = False

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask for a sign, or see for how long it is owed. Raises RuntimeError if the loop ended."""
        asked = self._asked
        if asked is None:
            self._warned = False
            self._asked = time.monotonic()
            loop.call_soon_threadsafe(self._answer)
            return
        blocked = time.monotonic() - asked
        if blocked >= self._patience:
            self._notice(loop, blocked)

    def _answer(self) -> None:
        self._asked = None

    def _notice(self, loop: asyncio.AbstractEventLoop, blocked: float) -> None:
        attempt = self._runner.attempt_in(asyncio.current_task(loop))
        name = attempt.task.func if attempt else "something that is not a handler"
        limit = attempt.limit if attempt else self._settings.timeout
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s blocks the event loop, for %.1f s or more so far: nothing else runs in this "
                "listener; make it a plain function, or let it await",
                name, blocked,
                extra=event("loop blocked", func=name, seconds=round(blocked, 1)),
            )  # fmt: skip
        self._give_back()
        if blocked >= limit + self._settings.grace:
            self._on_stuck(name)

    def _give_back(self) -> None:
        by_origin: defaultdict[Origin, list[Attempt]] = defaultdict(list)
        for attempt in self._runner.withdraw():
            by_origin[attempt.origin].append(attempt)
        for origin, attempts in by_origin.items():
            self._release(origin, attempts)

    def _release(self, origin: Origin, attempts: list[Attempt]) -> None:
        settlements = [attempt.conclusions.given_back(WITHDRAWN).settlement for attempt in attempts]
        try:
            origin.footing.now.heart_store.run(calls.settle(settlements, self._settings))
        except ServerError as error:
            logger.warning(
                "%d tasks could not be given back, and wait for their leases to lapse: %s",
                len(attempts), error,
                extra=event("left to leases", count=len(attempts), error=str(error)),
            )  # fmt: skip
