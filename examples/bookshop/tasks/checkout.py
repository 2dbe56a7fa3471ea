"""What happens to an order later."""

import bookshop

from expirebridge import Discard, make_task


def close_unpaid(number: int) -> str:
    """Close an order that was not paid."""
    order = bookshop.orders[number]
    if order.status == "new":
        order.status = "closed"
    return order.status


def remind(number: int) -> None:
    """Remind the customer to pay."""
    bookshop.mails.append(f"please pay order {number}")


def tell_bank(number: int) -> None:
    """Report a payment to the bank; the default policy repeats it, 15 times over a day."""
    bookshop.bank.tell(number)


async def ask_for_rating(number: int) -> None:
    """Ask the customer for a rating."""
    bookshop.mails.append(f"how was order {number}?")


def send_code(code: str) -> None:
    """Send a code for signing in."""
    bookshop.mails.append(f"your code is {code}")


def refund(number: int) -> None:
    """Pay an order back."""
    if number not in bookshop.orders:
        raise Discard(f"there is no order {number}")
    bookshop.orders[number].status = "refunded"


def pack(number: int) -> None:
    """Pack an order; it is shipped the next day."""
    bookshop.orders[number].status = "packed"
    make_task("checkout.ship", [number], "1d")


def ship(number: int) -> None:
    """Ship it; it arrives in two days."""
    bookshop.orders[number].status = "shipped"
    make_task("checkout.deliver", [number], "2d")


def deliver(number: int) -> None:
    """The customer has it."""
    bookshop.orders[number].status = "delivered"
