"""What the shop does later, in a moment."""

import bookshop
import pytest
import redis

from expirebridge import make_task
from expirebridge.testing import Clock, NeverIdle, run_handler


def test_an_order_is_closed_if_it_is_not_paid_within_a_day(expirebridge: Clock) -> None:
    bookshop.order(17)
    expirebridge.assert_made("checkout.close_unpaid", args=[17], due_in="24h")
    expirebridge.travel("23h59m")
    assert bookshop.orders[17].status == "new"
    expirebridge.travel("1m")
    assert bookshop.orders[17].status == "closed"


def test_a_rating_is_asked_for_later_if_the_customer_wants_that(expirebridge: Clock) -> None:
    bookshop.order(17)
    bookshop.pay(17)
    expirebridge.travel("71h")
    bookshop.ask_later(17)
    expirebridge.travel("24h")
    assert bookshop.mails == []
    expirebridge.travel("1h")
    assert bookshop.mails == ["how was order 17?"]


def test_a_rating_is_not_asked_for_once_it_is_there(expirebridge: Clock) -> None:
    bookshop.order(17)
    bookshop.pay(17)
    expirebridge.travel("48h")
    bookshop.rate(17, stars=5)
    expirebridge.travel(until="idle")
    assert bookshop.mails == []
    expirebridge.assert_not_made("checkout.ask_for_rating")


def test_the_bank_is_told_again_for_a_day(expirebridge: Clock) -> None:
    bookshop.bank.answers = False
    bookshop.order(17)
    bookshop.pay(17)
    ran = [one for one in expirebridge.travel("25h") if one.func == "checkout.tell_bank"]
    assert len(ran) == 16
    minute, hour = 60, 3600
    assert [one.delay for one in ran[:4]] == [15, 15, 30, 3 * minute]
    assert [one.delay for one in ran[-3:]] == [6 * hour, 6 * hour, None]
    [failed] = expirebridge.failed()
    assert "the bank does not answer" in (failed.error or "")
    # On the next day somebody calls the bank, and has it told once more.
    bookshop.bank.answers = True
    expirebridge.run_now(failed)
    assert bookshop.bank.heard == [17]


def test_a_till_is_silent_30_seconds_after_its_last_keepalive(expirebridge: Clock) -> None:
    key = bookshop.open_till("till-3")
    with redis.Redis.from_url(expirebridge.url) as till:
        for _ in range(4):
            expirebridge.travel("20s")
            assert till.expire(key, 30)
    assert bookshop.mails == []
    expirebridge.travel("30s")
    assert bookshop.mails == ["till-3 is silent"]


def test_who_pays_is_not_reminded(expirebridge: Clock) -> None:
    bookshop.order(17)
    bookshop.order(18)
    expirebridge.travel("19h")
    bookshop.pay(17)
    expirebridge.travel("2h")
    assert bookshop.mails == ["please pay order 18"]


def test_the_cash_is_counted_each_week(expirebridge: Clock) -> None:
    make_task("tills.count_cash", delay="7d", id="cash")
    expirebridge.travel("29d")
    assert bookshop.mails == ["count the cash"] * 4
    # It never ends, and a test that waits for that gets an error.
    with pytest.raises(NeverIdle, match=r"tills\.count_cash, 50 times"):
        expirebridge.travel(until="idle", limit=50)


def test_a_code_is_not_sent_after_a_night_without_listeners(expirebridge: Clock) -> None:
    bookshop.order(17)
    bookshop.send_code("1234")
    expirebridge.travel("21h", listening=False)
    reminded, skipped = sorted(expirebridge.travel(0), key=lambda one: one.func)
    assert reminded.late > 3000
    assert "skipped: found" in skipped.reason
    assert bookshop.mails == ["please pay order 17"]


def test_an_order_that_is_not_there_is_not_refunded_again_and_again(expirebridge: Clock) -> None:
    make_task("checkout.refund", [99], "1h")
    [refund] = expirebridge.travel("1d")
    assert (refund.end, refund.reason) == ("failed", "there is no order 99")
    # The same without a server.
    assert run_handler("checkout.refund", [99], tasks="tasks").reason == "there is no order 99"


def test_an_order_is_packed_shipped_and_delivered(expirebridge: Clock) -> None:
    bookshop.order(17)
    make_task("checkout.pack", [17], "1h")
    ran = expirebridge.travel("4d")
    steps = ["checkout.pack", "checkout.remind", "checkout.close_unpaid"]
    assert [one.func for one in ran] == [*steps, "checkout.ship", "checkout.deliver"]
    assert bookshop.orders[17].status == "delivered"
