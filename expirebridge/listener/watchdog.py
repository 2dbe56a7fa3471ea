"""The watchdog: notices that a handler blocks the event loop.

An async handler that does not give way holds up all that its listener does: the other handlers,
their timeouts, the recording of outcomes, even signals. Only the heartbeat goes on, in a thread of
its own, and so it is there that the watchdog looks.
"""

import asyncio
import contextlib
import inspect
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from expirebridge.errors import ServerError
from expirebridge.handlers import Then
from expirebridge.listener.execution.attempt import Attempt, Consumer, FinishedAttempt
from expirebridge.listener.execution.exceptions import WITHDRAWN
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.execution.outcome import AttemptOutcome, CallResult
from expirebridge.listener.execution.steps import after_error, after_overrun
from expirebridge.settings import Settings
from expirebridge.task.calls import claiming
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.texts import event, plural

# The emergency settler: records outcomes while the event loop is blocked.

ABANDONED = "its listener ended: another handler blocked the event loop for good"


class EmergencySettler:
    """Settles in the heartbeat's thread what the settlers, which need the loop, cannot."""

    def __init__(self, executor: Executor, settings: Settings) -> None:
        self._executor = executor
        self._settings = settings

    def give_back_pending(self) -> None:
        """Let other listeners run what was claimed and has not begun."""
        by_consumer: defaultdict[Consumer, list[Settlement]] = defaultdict(list)
        for attempt in self._executor.withdraw():
            outcome = attempt.outcomes.given_back(WITHDRAWN)
            by_consumer[attempt.consumer].append(outcome.settlement)
        for consumer, settlements in by_consumer.items():
            self._settle(consumer, settlements)

    def settle_all(
        self, loop: asyncio.AbstractEventLoop, culprit: Attempt | None, grace: float
    ) -> bool:
        """Record the known outcomes, before the process ends; returns True if that was done.

        It is not done while plain functions run in threads that may still end in time.

        The culprit, which blocks the loop, timed out. What ended is recorded as it ended. Handlers
        in processes are killed, and given back: their answers need the loop. So are async handlers,
        which wait for it; but if the culprit is not known, each of them may be it, and they are
        left to their leases, so that their lapses are counted.
        """
        attempts = list(self._executor.in_flight)
        if any(attempt.may_end_in_thread(grace) for attempt in attempts):
            return False
        # The loop may go on in a moment, before the process ends: it must claim nothing of this.
        self._executor.capacity.close()
        self._executor.kill_processes()
        by_consumer: defaultdict[Consumer, list[Attempt]] = defaultdict(list)
        for attempt in attempts:
            by_consumer[attempt.consumer].append(attempt)
        for consumer, some in by_consumer.items():
            self._settle_each(loop, consumer, some, culprit)
        return True

    def _settle_each(
        self,
        loop: asyncio.AbstractEventLoop,
        consumer: Consumer,
        attempts: Sequence[Attempt],
        culprit: Attempt | None,
    ) -> None:
        # The settler has these, but may not have sent them; to send one twice does no harm.
        sent = [
            attempt.settlement
            for attempt in attempts
            if attempt.settlement is not None and attempt.settlement.then is None
        ]
        finished = [
            FinishedAttempt(attempt, outcome, attempt.took)
            for attempt in attempts
            if attempt.settlement is None and (outcome := _outcome_of(attempt, culprit)) is not None
        ]
        codes = self._settle(consumer, [*sent, *(item.outcome.settlement for item in finished)])
        for item, code in zip(finished, codes[len(sent) :], strict=False):
            item.attempt.settlement = item.outcome.settlement
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(consumer.settler.close, item, code)

    def _settle(self, consumer: Consumer, settlements: Sequence[Settlement]) -> list[Settled]:
        """The server's answers; none if it does not answer."""
        if not settlements:
            return []
        call = claiming.settle(
            settlements, self._settings, fingerprint=self._executor.fingerprint.digest
        )
        try:
            return consumer.session.heart_store.run(call)
        except ServerError as error:
            logger.warning(
                "%s not be settled, until the leases lapse: %s",
                plural(len(settlements), "task could", "tasks could"), error,
                extra=event("left to leases", count=len(settlements), error=str(error)),
            )  # fmt: skip
            return []


def _outcome_of(attempt: Attempt, culprit: Attempt | None) -> AttemptOutcome | None:
    """The outcome of an attempt whose event loop is blocked; None if it is not known."""
    if attempt.began is None:
        return None  # it was given back before
    if attempt is culprit:
        return after_overrun(attempt)
    if attempt.runs_in_thread:
        if attempt.answer is None:
            return after_overrun(attempt)
        if isinstance(attempt.answer.value, Then):
            return None  # its follow-up cannot be made here: its lease lapses
        if not inspect.isawaitable(attempt.answer.value):
            return _outcome_of_answer(attempt, attempt.answer)
    if attempt.runs_in_process or culprit is not None:
        return attempt.outcomes.given_back(ABANDONED)
    return None


def _outcome_of_answer(attempt: Attempt, answer: CallResult) -> AttemptOutcome:
    attempt.took = answer.took
    try:
        return attempt.outcomes.succeeded(answer.result(attempt.limit))
    except BaseException as error:
        return after_error(attempt, error)


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
        executor: Executor,
        settings: Settings,
        *,
        on_stuck: Callable[[str], None],
    ) -> None:
        self._executor = executor
        self._settler = EmergencySettler(executor, settings)
        self._settings = settings
        self._on_stuck = on_stuck
        self._patience = settings.lease / claiming.BEATS_PER_LEASE
        self._asked: float | None = None
        """The time at which the loop was asked for a sign that is missing; None if none is."""
        self._warned = False
        self._looking = threading.Lock()

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask for a sign, or see for how long it is owed. Raises RuntimeError if the loop ended.

        Where several nodes have a heartbeat thread, one of them looks at a time.
        """
        if self._looking.acquire(blocking=False):
            try:
                self._look(loop)
            finally:
                self._looking.release()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        asked = self._asked
        if asked is None:
            self._warned = self._executor.condition.blocked = False
            self._asked = time.monotonic()
            loop.call_soon_threadsafe(self._answer)
            return
        blocked = time.monotonic() - asked
        if blocked >= self._patience:
            self._notice(loop, blocked)

    def _answer(self) -> None:
        self._asked = None

    def _notice(self, loop: asyncio.AbstractEventLoop, blocked: float) -> None:
        self._executor.condition.blocked = True
        attempt = self._executor.attempt_in(asyncio.current_task(loop))
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
        self._settler.give_back_pending()
        if blocked >= limit + self._settings.grace:
            self._give_up(loop, attempt, name)

    def _give_up(self, loop: asyncio.AbstractEventLoop, attempt: Attempt | None, name: str) -> None:
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
