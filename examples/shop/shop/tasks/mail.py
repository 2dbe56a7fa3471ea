"""Mails to customers."""

from shop.customers import greeting


def compose(name: str, text: str) -> str:
    """Write a mail. A helper: tasks cannot call it, since HANDLERS does not name it."""
    return f"{greeting(name)}, {text}"


async def welcome(name: str) -> str:
    """Welcome a new customer."""
    return compose(name, "welcome to the shop!")


HANDLERS = [welcome]
