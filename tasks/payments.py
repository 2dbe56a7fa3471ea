"""A handler with a retry policy of its own."""

from expirebridge import current_task, handler
from tasks._journal import note


@handler(retry=[1, 1, "5s"], timeout="10s")
async def callback(payment: int) -> str:
    """Tell a shop about a payment; in this example its server is down twice."""
    note()
    if current_task().attempt < 3:
        raise ConnectionError("the shop's server does not answer")
    return f"payment {payment} was confirmed"
