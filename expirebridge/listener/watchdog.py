"""The watchdog: notices that a handler blocks the event loop.

An async handler that does not give way holds up all that its listener does: the other handlers,
their timeouts, the recording of outcomes, even signals. Only the heartbeat goes on, in a thread of
its own, and so it is there that the watchdog looks.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from expirebridge.listener.execution.executor import Runner
from expirebridge.listener.execution.leased_attempt import LeasedAttempt
from expirebridge.listener.heart_settler import HeartSettler
from expirebridge.model.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store import commands

logger = logging.getLogger("expirebridge")


class Watchdog:
    """Asks the event loop for a sign of life at each heartbeat.

    If none comes for the time of a heartbeat, what blocks it is named in the log, and what was
    claimed and has not begun is released for other listeners. What has begun keeps its lease: it
    would run twice. If there is still no sign one grace time after the blocking handler's timeout,
    and no plain function is left that can end in time, outcomes are recorded as far as they are
    known, and `on_stuck` is called.

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
        self._settler = HeartSettler(runner, settings)
        self._settings = settings
        self._on_stuck = on_stuck
        self._patience = settings.lease / commands.BEATS_PER_LEASE
        self._asked: float | None = None
        """When the loop was asked for the sign that it still owes; None if it owes none."""
        self._warned = False
        self._looking = threading.Lock()

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask for a sign, or see for how long it is owed. Raises RuntimeError if the loop ended.

        Where several nodes have a thread that beats, one of them looks at a time.
        """
        if self._looking.acquire(blocking=False):
            try:
                self._look(loop)
            finally:
                self._looking.release()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
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
        self._settler.give_back_unbegun()
        if blocked >= limit + self._settings.grace:
            self._give_up(loop, attempt, name)

    def _give_up(
        self, loop: asyncio.AbstractEventLoop, attempt: LeasedAttempt | None, name: str
    ) -> None:
        """End the listener, once no plain function runs in it that can end in time."""
        grace = self._settings.grace
        culprit = attempt if attempt is not None and attempt.is_overdue else None
        if not self._settler.settle_all(loop, culprit, grace):
            return
        logger.error(
            "%s has blocked the event loop until %g s after its timeout: this listener ends",
            name, grace,
            extra=event("stuck", func=name, task=culprit.task.id if culprit else ""),
        )  # fmt: skip
        self._on_stuck(name)
