"""Handlers may be plain functions: each runs in a thread."""

from tasks._journal import note


def rate(order: int) -> str:
    """Ask a customer to rate an order."""
    note()
    return f"asked for a rating of order {order}"
