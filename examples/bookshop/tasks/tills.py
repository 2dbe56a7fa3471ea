"""What is noticed of the tills, and what repeats."""

import bookshop

from expirebridge import Bridge, current_task


def report_silence(name: str) -> None:
    """Report a till that has sent no keepalive for 30 seconds."""
    bookshop.mails.append(f"{name} is silent")


def count_cash() -> None:
    """Ask for the cash to be counted, each week."""
    bookshop.mails.append("count the cash")
    with Bridge() as bridge:
        bridge.reschedule(current_task().id, "7d")
