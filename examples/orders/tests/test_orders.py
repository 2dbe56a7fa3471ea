"""What follows an order, in a moment."""

from collections.abc import Iterator

import orders
import pytest
from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from expirebridge.ledger import Status
from expirebridge.testing import Clock, run_handler


@pytest.fixture(scope="session")
def created() -> Iterator[None]:
    """All tables, those of the ledger as well."""
    orders.Base.metadata.create_all(orders.engine)
    yield
    orders.engine.dispose()


@pytest.fixture
def rolled_back(created: None, expirebridge: Clock) -> Iterator[None]:
    """The test runs in one transaction, of which nothing is left."""
    with orders.engine.connect() as connection, connection.begin() as transaction:
        expirebridge.use_ledger(connection)
        orders.new_session.configure(bind=connection, join_transaction_mode="create_savepoint")
        yield
        orders.new_session.configure(bind=orders.engine)
        transaction.rollback()


@pytest.fixture
def committed(created: None, expirebridge: Clock) -> Iterator[None]:
    """The test commits: it empties its own tables. Those of the ledger are emptied by the kit."""
    expirebridge.use_ledger(orders.engine)
    yield
    with orders.engine.begin() as connection:
        for own in (orders.Mail, orders.Voucher, orders.Order):
            connection.execute(delete(own))


@pytest.fixture(autouse=True, params=["rolled_back", "committed"])
def database(request: pytest.FixtureRequest) -> None:
    """Each test runs in both ways; one is enough for a shop."""
    request.getfixturevalue(request.param)


def place() -> int:
    """Commit an order; returns its number."""
    with orders.new_session.begin() as session:
        return orders.place(session).id


def written() -> list[str]:
    """What the mails are about that were written."""
    with orders.new_session() as session:
        return list(session.scalars(select(orders.Mail.about).order_by(orders.Mail.id)))


def statuses(number: int) -> dict[str, Status]:
    """How the tasks of an order stand, by their functions."""
    with orders.new_session() as session:
        return {t.func: t.status for t in orders.ledger.find(session, ext=f"order-{number}")}


def test_what_follows_an_order_is_made_with_it(expirebridge: Clock) -> None:
    number = place()
    expirebridge.assert_made("mails.confirm", args=[number], due_in=0)
    expirebridge.assert_made("mails.ask_for_payment", args=[number], due_in="24h")
    expirebridge.assert_made("mails.ask_for_rating", args=[number], due_in="48h", count=1)


def test_three_days_of_an_order(expirebridge: Clock) -> None:
    number = place()
    # The reminder is due 24 hours after its handler asked for a rating, a moment after 48 hours.
    ran = expirebridge.travel("3d1m", raising=True)
    assert {one.end for one in ran} == {"succeeded"}
    assert written() == ["confirmation", "payment", "rating", "reminder"]
    assert set(statuses(number).values()) == {Status.SUCCEEDED}


def test_an_order_that_fails_leaves_nothing_behind(expirebridge: Clock) -> None:
    with pytest.raises(orders.PaymentRefusedError), orders.new_session.begin() as session:
        orders.place(session, card="stolen")
    assert expirebridge.made() == []
    assert expirebridge.travel("3d") == []


def test_a_voucher_that_was_used_is_not_thanked_for(expirebridge: Clock) -> None:
    first, second = place(), place()
    with orders.new_session.begin() as session:
        orders.redeem(session, session.get_one(orders.Order, first), 1234)
    with orders.new_session.begin() as session:
        other = session.get_one(orders.Order, second)
        with pytest.raises(IntegrityError):  # its savepoint is rolled back, and the order goes on
            orders.redeem(session, other, 1234)
        orders.pay(session, other)
    expirebridge.assert_made("mails.thank_for_voucher", args=[first], due_in="1h", count=1)
    expirebridge.travel("3d", raising=True)
    assert written().count("voucher") == 1
    assert statuses(second)["mails.ask_for_payment"] is Status.CANCELLED


def test_who_has_paid_is_not_asked_to(expirebridge: Clock) -> None:
    number = place()
    expirebridge.travel("23h")
    with orders.new_session.begin() as session:
        orders.pay(session, session.get_one(orders.Order, number))
    expirebridge.travel("1h")
    assert written() == ["confirmation"]
    expirebridge.assert_not_made("mails.ask_for_payment")


@pytest.mark.parametrize("hours", ["49h", "71h59m"])
def test_who_has_rated_is_not_reminded(expirebridge: Clock, hours: str) -> None:
    number = place()
    expirebridge.travel(hours)
    expirebridge.assert_made("mails.remind_of_rating", args=[number])
    with orders.new_session.begin() as session:
        orders.rate(session, session.get_one(orders.Order, number), stars=5)
    expirebridge.travel(until="idle")
    assert "reminder" not in written()
    assert statuses(number)["mails.remind_of_rating"] is Status.CANCELLED


def test_nothing_follows_an_order_that_was_cancelled(expirebridge: Clock) -> None:
    number = place()
    expirebridge.travel("1h")
    with orders.new_session.begin() as session:
        orders.cancel(session, session.get_one(orders.Order, number))
    assert expirebridge.travel("3d") == []
    assert statuses(number) == {
        "mails.confirm": Status.SUCCEEDED,
        "mails.ask_for_payment": Status.CANCELLED,
        "mails.ask_for_rating": Status.CANCELLED,
    }


def test_a_mail_is_written_once_although_its_handler_fails_after_it(
    expirebridge: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = place()

    def be_away(number: int) -> None:
        raise ConnectionError(f"no phone was told of order {number}")

    monkeypatch.setattr(orders, "notify", be_away)
    [ran] = expirebridge.travel("1h")
    assert ran.end == "succeeded"  # its row says so
    assert written() == ["confirmation"]
    assert statuses(number)["mails.confirm"] is Status.SUCCEEDED
    with pytest.raises(ConnectionError):
        run_handler("mails.confirm", [number], tasks="tasks")


def test_orders_are_counted_each_night(expirebridge: Clock) -> None:
    with orders.new_session.begin() as session:
        orders.open_shop(session)
    place()
    nights = [one for one in expirebridge.travel("3d") if one.func == "nights.count_orders"]
    assert [one.result for one in nights] == [1, 1, 1]
    assert {one.at.hour for one in nights} == {3}
    with orders.new_session() as session:
        rows = [orders.ledger.get(session, one.task.id) for one in nights]
    assert {row.status for row in rows if row} == {Status.SUCCEEDED}


def test_a_handler_alone() -> None:
    with orders.new_session.begin() as session:
        number = orders.place(session).id
        tasks = orders.ledger.find(session, ext=f"order-{number}")
    [id] = [task.id for task in tasks if task.func == "mails.ask_for_rating"]
    run_handler("mails.ask_for_rating", [number], id=id, tasks="tasks")
    assert written() == ["rating"]
    assert statuses(number)["mails.ask_for_rating"] is Status.SUCCEEDED
