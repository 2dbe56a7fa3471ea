"""Overtime: what is done about a handler that cannot be stopped at its timeout."""

import asyncio
import logging
from typing import TYPE_CHECKING

from expirebridge.listener.execution.in_flight import Unsettled
from expirebridge.listener.shutdown import Shutdown
from expirebridge.model.log_fields import event

if TYPE_CHECKING:
    from expirebridge.listener.execution.attempt import Attempt

logger = logging.getLogger("expirebridge")


class Overtime:
    """Gives such a handler the grace time to end, and then gives up the listener."""

    def __init__(self, grace: float, shutdown: Shutdown, unsettled: Unsettled) -> None:
        self._grace = grace
        self._shutdown = shutdown
        self._unsettled = unsettled

    def notice(self, attempt: "Attempt") -> None:
        """Take note that its handler goes on after its timeout."""
        func = attempt.task.func
        logger.warning(
            "%s %s overran its timeout: it cannot be stopped", func, attempt.task.id,
            extra=event("overtime", func=func, task=attempt.task.id),
        )  # fmt: skip
        asyncio.get_running_loop().call_later(self._grace, self._look_again, attempt)

    def _look_again(self, attempt: "Attempt") -> None:
        if attempt.is_over:
            return
        attempt.is_stuck = True
        report_stuck(attempt, self._grace)
        self._shutdown.give_up(attempt.task.func)
        self._unsettled.look_again()


def report_stuck(attempt: "Attempt", grace: float) -> None:
    """Log that its handler did not end, and what its listener does now. Safe for threads."""
    func = attempt.task.func
    logger.error(
        "%s %s did not end %g s after its timeout: this listener claims no more, and ends when its "
        "other tasks have ended",
        func, attempt.task.id, grace,
        extra=event("stuck", func=func, task=attempt.task.id),
    )  # fmt: skip
