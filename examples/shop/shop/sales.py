"""Orders in the shop's own SQL database, and the task that belongs to each.

An order and its task are one transaction: both are there, or neither. EXPIREBRIDGE_LEDGER names the
database.

python -m shop.sales
"""

import os

from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from expirebridge.ledger import Ledger, tables
from shop.tasks import orders


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """What a customer bought."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(String(100))
    returned: Mapped[bool] = mapped_column(default=False)


# The ledger's tables stand beside the shop's, and are created with them.
ledger = Ledger(tables=tables(Base.metadata))


def place(session: Session, customer: str) -> Order:
    """Store an order, and ask for a rating in three days."""
    order = Order(customer=customer)
    session.add(order)
    session.flush()  # it has its number now
    ledger.make_task(session, orders.rate, [customer, order.id], "72h", ext=f"order-{order.id}")
    return order


def take_back(session: Session, order: Order) -> None:
    """Note that an order was returned: nobody wants to rate it any more."""
    order.returned = True
    ledger.cancel(session, ext=f"order-{order.id}")


def main() -> None:
    """Place three orders: one stays, one is returned, and of one the payment fails."""
    engine = create_engine(os.environ["EXPIREBRIDGE_LEDGER"])
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        ann = place(session, "ann")
        bob = place(session, "bob")
        session.commit()

        take_back(session, bob)
        session.commit()

        place(session, "cleo")
        session.rollback()

        for order in (ann, bob):
            [task] = ledger.find(session, ext=f"order-{order.id}")
            print(f"{order.customer}: {task.func}, wanted: {task.wanted}")
        print(f"{session.query(Order).count()} orders")
    engine.dispose()


if __name__ == "__main__":
    main()
