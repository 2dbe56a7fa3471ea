"""What the shop counts at night."""

import orders
from sqlalchemy import func, select


def count_orders() -> int:
    """Count the orders."""
    with orders.new_session() as session:
        return session.scalar(select(func.count()).select_from(orders.Order)) or 0
