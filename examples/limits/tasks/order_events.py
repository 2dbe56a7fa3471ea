"""The events of an order, one after the other."""

import logging

from expirebridge import Limit, current_task, handler

log = logging.getLogger(__name__)


@handler(limit=Limit(1, per="order", ordered=True), retry=["100ms", "10s", "1m"])
def apply(order: int, event: str) -> None:
    """Note what happened to an order. What happened next waits until this has ended for good."""
    if event == "paid" and current_task().attempt == 1:
        raise ConnectionError("the bank did not answer")
    log.info("order %d: %s", order, event)
