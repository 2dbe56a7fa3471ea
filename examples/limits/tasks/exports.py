"""Exports: a customer who orders many at once does not keep others waiting."""

import time

from expirebridge import Limit, handler


@handler(limit=[Limit(2, per="customer"), Limit(4)])
def export(customer: str, month: str) -> str:
    """Write a file. At most two at once for each customer, and four in all."""
    time.sleep(0.05)  # the work
    return f"{customer}-{month}.csv"
