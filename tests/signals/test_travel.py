"""Signals in the tests of a user: days pass in a moment, and a handler alone is signalled."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from expirebridge import AsyncBridge, Change, InvalidTask, Retry, Signal, State, current_task
from expirebridge import make_task as make
from expirebridge.hooks import End
from expirebridge.testing import Clock, run_handler
from tests.kit.private_keys import key

pytestmark = pytest.mark.servers("oldest")


def withdraw(request: int) -> list[Any]:
    if request < 0 and current_task().attempt == 1:
        raise Retry(after="1h")
    return ["withdrawn", request, current_task().signal]


def pay(request: int) -> list[Any]:
    signal = current_task().signal
    assert signal is not None
    return ["paid", request, signal.payload, signal.by, signal.instead_of]


INSTEAD = ["expenses.withdraw"]
HANDLERS: dict[str, Callable[..., Any]] = {"expenses.withdraw": withdraw, "expenses.pay": pay}


@pytest.fixture
def clock(url: str) -> Iterator[Clock]:
    with Clock(url, handlers=HANDLERS) as clock:
        yield clock


def ask(request: int = 7) -> None:
    make("expenses.withdraw", [request], "48h", id="ask", on_signal="expenses.pay")


def test_without_a_signal_the_first_function_runs_at_the_deadline(clock: Clock) -> None:
    ask()
    [made] = clock.assert_made("expenses.withdraw", args=[7], due_in="48h")
    assert made.on_signal == "expenses.pay"
    assert clock.travel("47h") == []
    [ran] = clock.travel("2h")
    assert (ran.func, ran.result) == ("expenses.withdraw", ["withdrawn", 7, None])
    assert clock.bridge.signal("ask") is Change.FINISHED
    clock.assert_not_made("expenses.pay")


def test_a_signal_runs_the_other_one_at_that_moment(clock: Clock) -> None:
    ask()
    clock.travel("47h")
    then = clock.now
    assert clock.bridge.signal("ask", {"sum": 9}, by="ann") is Change.SIGNALLED
    [ran] = clock.travel("2d")
    assert (ran.func, ran.result) == ("expenses.pay", ["paid", 7, {"sum": 9}, "ann", *INSTEAD])
    assert then <= ran.at < then + timedelta(hours=1)
    signal = ran.task.signal
    assert signal is not None
    assert then <= signal.at <= ran.at
    clock.assert_not_made("expenses.withdraw")
    assert clock.travel("2d") == []


def test_a_retry_of_the_deadlines_function_is_not_signalled(clock: Clock) -> None:
    ask(-7)
    [ran] = clock.travel("48h")
    assert ran.end is End.RETRY
    assert clock.bridge.signal("ask") is Change.BEGUN
    [ran] = clock.travel("1h")
    assert ran.result == ["withdrawn", -7, None]


def test_it_can_be_signalled_when_no_listener_was_there_at_the_deadline(clock: Clock) -> None:
    ask()
    clock.travel("3d", listening=False)
    assert clock.bridge.signal("ask", by="ann") is Change.SIGNALLED
    [ran] = clock.travel(0)
    assert ran.result == ["paid", 7, None, "ann", *INSTEAD]


def test_a_task_that_is_run_now_is_not_signalled(clock: Clock) -> None:
    ask()
    assert clock.run_now("ask").result == ["withdrawn", 7, None]
    assert clock.bridge.signal("ask") is Change.FINISHED


async def test_in_an_async_test(clock: Clock) -> None:
    async with AsyncBridge(clock.url) as bridge:
        await bridge.make_task("expenses.withdraw", [7], "48h", id="a", on_signal="expenses.pay")
        await bridge.signal("a", 1)
    [ran] = await clock.atravel("1h")
    assert ran.result == ["paid", 7, 1, "", *INSTEAD]


def test_what_is_sealed_is_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", key("2026"))
    with Clock(url, handlers=HANDLERS) as clock:
        for id in ("a", "b"):
            make("expenses.withdraw", [7], "48h", id=id, on_signal="expenses.pay")
        clock.bridge.signal("a", {"sum": 9})
        ran = clock.travel("3d")
    assert [one.result for one in ran] == [
        ["paid", 7, {"sum": 9}, "", *INSTEAD],
        ["withdrawn", 7, None],
    ]


def test_what_waits_is_listed_with_both_functions(clock: Clock) -> None:
    ask()
    assert "expenses.withdraw(7) due in 2d, or expenses.pay once it is signalled" in str(clock)
    with pytest.raises(AssertionError, match=r"or expenses\.pay once it is signalled, task ask"):
        clock.assert_made("expenses.pay")
    clock.bridge.signal("ask")
    assert "signalled" not in str(clock)


def test_who_makes_a_task_is_told_what_it_waits_for(clock: Clock) -> None:
    def made(**options: Any) -> str | None:
        given = {"id": "a", "on_signal": "expenses.pay", **options}
        return make("expenses.withdraw", [1], "1h", **given).on_signal

    assert made() == made(if_exists="replace") == "expenses.pay"
    assert made(if_exists="keep", on_signal="expenses.other") is None
    assert made(id="b", on_signal=None) is None


# A handler alone


def test_a_handler_alone_has_the_signal_that_it_is_given() -> None:
    given = Signal({"sum": 9}, by="ann", instead_of="expenses.withdraw")
    assert run_handler(pay, [7], signal=given).result == ["paid", 7, {"sum": 9}, "ann", *INSTEAD]
    assert run_handler(withdraw, [7]).result == ["withdrawn", 7, None]


def test_all_of_a_signal_is_as_it_would_be_read() -> None:
    def tell() -> list[Any]:
        signal = current_task().signal
        assert signal is not None
        return [signal.payload, signal.by, signal.instead_of, signal.at.isoformat()]

    at = datetime(2030, 1, 1, 12, 30, tzinfo=UTC)
    given = Signal(payload=["a", 1], by="ann of sales", instead_of="x.y", at=at)
    assert run_handler(tell, signal=given).result == [
        ["a", 1], "ann of sales", "x.y", at.isoformat()
    ]  # fmt: skip
    before = datetime.now(UTC)
    [payload, by, instead_of, now] = run_handler(tell, signal=Signal()).result
    assert (payload, by, instead_of) == (None, "", "")
    rounded = timedelta(milliseconds=1)
    assert before - rounded <= datetime.fromisoformat(now) <= datetime.now(UTC) + rounded


def test_a_payload_that_json_cannot_hold_is_refused_as_the_bridge_does(clock: Clock) -> None:
    ask()
    told = []
    for signal in (
        lambda: run_handler(pay, [7], signal=Signal({"at": datetime.now(UTC)})),
        lambda: clock.bridge.signal("ask", {"at": datetime.now(UTC)}),
    ):
        with pytest.raises(InvalidTask, match="payload") as caught:
            signal()
        told.append(str(caught.value)[:40])
    assert told[0] == told[1]
    found = clock.bridge.get("ask")
    assert found is not None
    assert found.state is State.PENDING
