"""Mails about orders. Each is written in one transaction with the end of its task."""

import orders

from expirebridge import current_task


def confirm(number: int) -> None:
    """Confirm an order."""
    _write(number, "confirmation")


def ask_for_payment(number: int) -> None:
    """Ask the customer to pay."""
    _write(number, "payment")


def thank_for_voucher(number: int) -> None:
    """Thank for a voucher."""
    _write(number, "voucher")


def remind_of_rating(number: int) -> None:
    """Ask once more for a rating."""
    _write(number, "reminder")


def ask_for_rating(number: int) -> None:
    """Ask for a rating, and once more a day later if there is none by then."""
    with orders.new_session.begin() as session:
        session.add(orders.Mail(order=number, about="rating"))
        name = f"order-{number}"
        orders.ledger.make_task(
            session, "mails.remind_of_rating", [number], "24h", id=f"remind-{name}", ext=name
        )
        current_task().complete_in(session)


def _write(number: int, about: str) -> None:
    with orders.new_session.begin() as session:
        session.add(orders.Mail(order=number, about=about))
        current_task().complete_in(session)
    orders.notify(number)
