"""Lost attempts: those that nothing in this listener will settle, by a fault of its own.

A lease is renewed for as long as it is held, so a lost attempt would keep its task from every other
listener, for ever.
"""

import logging

from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.execution.leases import Leases
from expirebridge.model.log_fields import event

logger = logging.getLogger("expirebridge")


def let_lost_lapse(leases: Leases, runner: Executor) -> None:
    """Report and drop what this station's leases are renewed for, but nobody's: it lapses.

    Call it on the event loop. A step there changes a lease and its attempt together, and other
    threads only drop leases, so nothing that is merely under way is found.
    """
    owned = set[tuple[str, str]]()
    for attempt in list(runner.unsettled):
        if attempt.origin.leases is leases:
            claim = (attempt.claimed.id, attempt.claimed.token)
            if runner.owns(attempt):
                owned.add(claim)
            else:
                _let_lapse(leases, *claim)
                runner.disown(attempt)
    for claim in leases.held():
        if claim not in owned:
            _let_lapse(leases, *claim)


def _let_lapse(leases: Leases, id: str, token: str) -> None:
    leases.drop(id, token)
    logger.error(
        "nothing in this listener runs task %s any more, but its lease was renewed: it lapses "
        "now; please report this fault of expirebridge",
        id,
        extra=event("lost attempt", task=id),
    )  # fmt: skip
