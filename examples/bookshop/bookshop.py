"""A small bookshop. What it does later is in tasks/."""

from dataclasses import dataclass, field

from expirebridge import Bridge, make_task


@dataclass
class Order:
    """What a customer ordered, and how far it has come."""

    number: int
    status: str = "new"
    stars: int | None = None


@dataclass
class Bank:
    """Hears of each payment; sometimes it does not answer."""

    answers: bool = True
    heard: list[int] = field(default_factory=list)

    def tell(self, number: int) -> None:
        """Tell it that an order was paid."""
        if not self.answers:
            raise ConnectionError("the bank does not answer")
        self.heard.append(number)


orders: dict[int, Order] = {}
bank = Bank()
mails: list[str] = []


def order(number: int) -> Order:
    """Take an order, which is closed if it is not paid within 24 hours."""
    placed = orders[number] = Order(number)
    make_task("checkout.close_unpaid", [number], "24h", id=f"close-{number}")
    make_task("checkout.remind", [number], "20h", id=f"remind-{number}")
    return placed


def pay(number: int) -> None:
    """Take a payment, tell the bank, and ask for a rating in three days."""
    orders[number].status = "paid"
    make_task("checkout.tell_bank", [number], 0, id=f"bank-{number}")
    make_task("checkout.ask_for_rating", [number], "72h", id=f"rating-{number}")
    with Bridge() as bridge:
        bridge.cancel(f"remind-{number}")


def ask_later(number: int) -> None:
    """Put the question for a rating off by a day."""
    with Bridge() as bridge:
        bridge.put_off(f"rating-{number}", "24h")


def rate(number: int, stars: int) -> None:
    """Take a rating; it is not asked for any more."""
    orders[number].stars = stars
    with Bridge() as bridge:
        bridge.cancel(f"rating-{number}")


def open_till(name: str) -> bytes:
    """Watch a till. It keeps alive the key that is returned, with EXPIRE."""
    with Bridge() as bridge:
        return bridge.watch(name, "tills.report_silence", [name], ttl="30s").key


def send_code(code: str) -> None:
    """Send a code for signing in a minute from now; after five minutes it is of no use."""
    make_task("checkout.send_code", [code], "1m", late_after="5m", misfire="skip")
