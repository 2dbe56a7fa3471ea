"""What follows an order."""

from expirebridge import current_task, handler

from ..customers import greeting
from .mail import compose


@handler(retry=["1m", "1h"], aliases=["orders.ask_for_rating"])
def rate(name: str, order: int) -> str:
    """Ask a customer to rate an order. Once, this function was called ask_for_rating."""
    if current_task().attempt > 1:
        return f"{greeting(name)}, we ask you again to rate order {order}"
    return compose(name, f"please rate order {order}")
