"""A shop whose orders are in SQL. What follows them is in tasks/, and made in its transactions."""

import os

from sqlalchemy import ForeignKey, String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from expirebridge.ledger import Ledger, tables
from expirebridge.ledger.engine import begin_immediate

engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///orders.db"))
if engine.dialect.name == "sqlite":
    begin_immediate(engine)
new_session = sessionmaker(engine)


class Base(DeclarativeBase):
    """The shop's tables, and those of the ledger."""


class Order(Base):
    """What a customer ordered, and how far it has come."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    paid: Mapped[bool] = mapped_column(default=False)
    stars: Mapped[int | None]


class Mail(Base):
    """What was written to a customer."""

    __tablename__ = "mails"

    id: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    about: Mapped[str] = mapped_column(String(20))


class Voucher(Base):
    """Pays an order, once."""

    __tablename__ = "vouchers"

    code: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    order: Mapped[int] = mapped_column(ForeignKey("orders.id"))


ledger = Ledger(engine, tables=tables(Base.metadata))


class PaymentRefusedError(Exception):
    """The bank refused a payment."""


def place(session: Session, *, card: str = "good") -> Order:
    """Take an order, and all that follows it: either all of it is committed, or nothing."""
    order = Order()
    session.add(order)
    session.flush()  # it has its number now
    name = f"order-{order.id}"
    ledger.make_task(session, "mails.confirm", [order.id], 0, ext=name)
    ledger.make_task(
        session, "mails.ask_for_payment", [order.id], "24h", id=f"pay-{name}", ext=name
    )
    ledger.make_task(session, "mails.ask_for_rating", [order.id], "48h", ext=name)
    if card == "stolen":
        raise PaymentRefusedError
    return order


def pay(session: Session, order: Order) -> None:
    """Take a payment: it is not asked for any more."""
    order.paid = True
    ledger.cancel(session, f"pay-order-{order.id}")


def redeem(session: Session, order: Order, code: int) -> None:
    """Pay with a voucher, and say so in an hour. Raises IntegrityError if it was used before."""
    with session.begin_nested():
        ledger.make_task(session, "mails.thank_for_voucher", [order.id], "1h")
        session.add(Voucher(code=code, order=order.id))
    pay(session, order)


def rate(session: Session, order: Order, stars: int) -> None:
    """Take a rating: the customer is not reminded of it."""
    order.stars = stars
    ledger.cancel(session, f"remind-order-{order.id}")


def cancel(session: Session, order: Order) -> None:
    """Cancel an order, and all that was to follow it."""
    ledger.cancel(session, ext=f"order-{order.id}")


def notify(number: int) -> None:
    """Tell the customer's phone that there is a mail. Raises ConnectionError if that is away."""


def open_shop(session: Session) -> None:
    """Have the orders counted each night."""
    ledger.schedule(session, "nightly", "nights.count_orders", cron="0 3 * * *")
