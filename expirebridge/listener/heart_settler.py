"""The heart settler: records outcomes while the event loop is blocked."""

import asyncio
import contextlib
import inspect
import logging
from collections import defaultdict
from collections.abc import Sequence

from expirebridge.errors import ServerError
from expirebridge.listener.execution.executor import Runner
from expirebridge.listener.execution.leased_attempt import LeasedAttempt
from expirebridge.listener.execution.not_started import WITHDRAWN
from expirebridge.listener.execution.origin import Origin
from expirebridge.listener.execution.outcome import Conclusion
from expirebridge.listener.execution.plain_call import Answer
from expirebridge.listener.execution.settler import Finished
from expirebridge.model.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.commands import Settled, Settlement

logger = logging.getLogger("expirebridge")

ABANDONED = "its listener ended: another handler blocked the event loop for good"


class HeartSettler:
    """Settles in the heartbeat's thread what the settlers, which need the loop, cannot."""

    def __init__(self, runner: Runner, settings: Settings) -> None:
        self._runner = runner
        self._settings = settings

    def give_back_unbegun(self) -> None:
        """Let other listeners run what was claimed and has not begun."""
        by_origin: defaultdict[Origin, list[Settlement]] = defaultdict(list)
        for attempt in self._runner.withdraw():
            conclusion = attempt.conclusions.given_back(WITHDRAWN)
            by_origin[attempt.origin].append(conclusion.settlement)
        for origin, settlements in by_origin.items():
            self._settle(origin, settlements)

    def settle_all(
        self, loop: asyncio.AbstractEventLoop, culprit: LeasedAttempt | None, grace: float
    ) -> bool:
        """Record what can be said of each attempt, before the process ends; whether that was done.

        It is not done while plain functions run in threads that may still end in time.

        The culprit, which blocks the loop, timed out. What ended is recorded as it ended. Handlers
        in processes are killed, and given back: their answers need the loop. So are async handlers,
        which wait for it; but if the culprit is not known, each of them may be it, and they are
        left to their leases, so that their lapses are counted.
        """
        attempts = list(self._runner.unsettled)
        if any(attempt.may_end_in_thread(grace) for attempt in attempts):
            return False
        # The loop may go on in a moment, before the process ends: it must claim nothing of this.
        self._runner.room.close()
        self._runner.kill_processes()
        by_origin: defaultdict[Origin, list[LeasedAttempt]] = defaultdict(list)
        for attempt in attempts:
            by_origin[attempt.origin].append(attempt)
        for origin, some in by_origin.items():
            self._settle_each(loop, origin, some, culprit)
        return True

    def _settle_each(
        self,
        loop: asyncio.AbstractEventLoop,
        origin: Origin,
        attempts: Sequence[LeasedAttempt],
        culprit: LeasedAttempt | None,
    ) -> None:
        # The settler has these, but may not have sent them; to send one twice does no harm.
        sent = [attempt.settlement for attempt in attempts if attempt.settlement is not None]
        finished = [
            Finished(attempt, conclusion, attempt.took)
            for attempt in attempts
            if attempt.settlement is None
            and (conclusion := _conclude(attempt, culprit)) is not None
        ]
        codes = self._settle(origin, [*sent, *(item.conclusion.settlement for item in finished)])
        for item, code in zip(finished, codes[len(sent) :], strict=False):
            item.attempt.settlement = item.conclusion.settlement
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(origin.settler.close, item, code)

    def _settle(self, origin: Origin, settlements: Sequence[Settlement]) -> list[Settled]:
        """The server's answers; none if it does not answer."""
        if not settlements:
            return []
        call = commands.settle(
            settlements, self._settings, fingerprint=self._runner.fingerprint.digest
        )
        try:
            return origin.footing.now.heart_store.run(call)
        except ServerError as error:
            logger.warning(
                "%d tasks could not be settled, and wait for their leases to lapse: %s",
                len(settlements), error,
                extra=event("left to leases", count=len(settlements), error=str(error)),
            )  # fmt: skip
            return []


def _conclude(attempt: LeasedAttempt, culprit: LeasedAttempt | None) -> Conclusion | None:
    """What can be said of an attempt whose event loop does not go on; None: nothing."""
    if attempt.began is None:
        return None  # it was given back before
    if attempt is culprit:
        return attempt.overrun()
    if attempt.runs_in_thread:
        if attempt.answer is None:
            return attempt.overrun()
        if not inspect.isawaitable(attempt.answer.value):
            return _conclude_answer(attempt, attempt.answer)
    if attempt.runs_in_process or culprit is not None:
        return attempt.conclusions.given_back(ABANDONED)
    return None


def _conclude_answer(attempt: LeasedAttempt, answer: Answer) -> Conclusion:
    attempt.took = answer.took
    try:
        return attempt.conclusions.succeeded(answer.result(attempt.limit))
    except BaseException as error:
        return attempt.after(error)
