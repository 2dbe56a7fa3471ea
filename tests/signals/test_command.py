"""`expirebridge signal` from the terminal, and what other commands show of signals."""

from collections.abc import Callable
from typing import Any

import pytest

from expirebridge import Bridge, State
from expirebridge.cli.ending import BAD_INPUT, NOT_POSSIBLE
from expirebridge.store.client import Store
from expirebridge.task.calls.claiming import Settlement
from tests.kit.invoked import invoke, invoke_json, run
from tests.kit.steps import claim, settle


def make(bridge: Bridge, delay: str = "15m", **options: Any) -> None:
    bridge.make_task("orders.cancel", [42], delay, id="pay-42", on_signal="orders.ship", **options)


def test_a_task_is_made_signalled_and_shown(url: str) -> None:
    words = ("orders.cancel", "[42]", "--in", "15m", "--id", "pay-42", "--on-signal", "orders.ship")
    made = invoke_json("make", *words, url=url)
    assert (made["func"], made["on_signal"], made["signal"]) == (
        "orders.cancel", "orders.ship", None
    )  # fmt: skip
    assert "on signal  orders.ship" in invoke("show", "pay-42", url=url)
    said = ("pay-42", '{"ref": 7}', "--by", "psp")
    assert invoke("signal", *said, url=url) == "pay-42: signalled\n"
    assert invoke_json("signal", *said, url=url) == {"id": "pay-42", "outcome": "signalled"}
    shown = dict(line.split("  ", 1) for line in invoke("show", "pay-42", url=url).splitlines())
    assert {name: value.strip() for name, value in shown.items() if "signal" in name} == {
        "signal": '{"ref":7}', "signalled by": "psp", "signalled": shown["signalled"].strip(),
    }  # fmt: skip
    assert (shown["func"].strip(), shown["instead of"].strip()) == ("orders.ship", "orders.cancel")
    told = invoke_json("show", "pay-42", url=url)
    assert (told["func"], told["on_signal"]) == ("orders.ship", None)
    assert told["signal"].pop("at").endswith("+00:00")
    assert told["signal"] == {"payload": {"ref": 7}, "by": "psp", "instead_of": "orders.cancel"}
    assert [one["what"] for one in told["history"]] == ["created", "signal"]


def test_a_payload_and_a_sender_may_be_left_out(url: str, bridge: Bridge) -> None:
    make(bridge)
    invoke("signal", "pay-42", url=url)
    task = bridge.get("pay-42")
    assert task is not None
    assert task.signal is not None
    assert (task.signal.payload, task.signal.by) == (None, "")


def test_a_forecast_counts_it_for_its_deadline_until_it_is_signalled(
    url: str, bridge: Bridge
) -> None:
    make(bridge)
    told = invoke_json("forecast", "--per", "1h", url=url)
    assert [span["functions"] for span in told["spans"]] == [{"orders.cancel": 1}, {}]
    bridge.signal("pay-42")
    told = invoke_json("forecast", "--per", "1h", url=url)
    assert (told["overdue"], [span["count"] for span in told["spans"]]) == (1, [0, 0])


def _signalled(bridge: Bridge, _: Store) -> None:
    make(bridge)
    bridge.signal("pay-42", 1)


def _plain(bridge: Bridge, _: Store) -> None:
    bridge.make_task("mail.send", [], "15m", id="pay-42")


def _running(bridge: Bridge, store: Store) -> None:
    make(bridge, "0s")
    claim(store)


def _retried(bridge: Bridge, store: Store) -> None:
    _running(bridge, store)
    settle(store, Settlement("pay-42", "t", "retry", 60.0, "it failed"))


def _cancelled(bridge: Bridge, _: Store) -> None:
    make(bridge)
    bridge.cancel("pay-42")


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (_signalled, "signalled before: another signal has decided: expirebridge show pay-42"),
        (_plain, "not awaited: it was made without --on-signal: it runs one function alone"),
        (
            _running,
            "running: too late: its deadline has decided, and the handler of that has begun",
        ),
        (_retried, "begun: too late: its deadline has decided, and the next attempt is to come"),
        (_cancelled, "finished: it has ended: expirebridge show pay-42"),
        (lambda *_: None, "not found: it was never made, or has ended and was forgotten"),
    ],
)
def test_a_signal_that_does_not_decide_says_why(
    before: Callable[[Bridge, Store], None], told: str, url: str, bridge: Bridge, store: Store
) -> None:
    before(bridge, store)
    result = run("signal", "pay-42", url=url)
    assert (result.returncode, result.stdout) == (NOT_POSSIBLE, "")
    assert result.stderr == f"expirebridge: task 'pay-42': {told}\n"
    answer = run("signal", "pay-42", "--json", url=url)
    assert (answer.returncode, answer.stderr) == (NOT_POSSIBLE, "")
    assert f'"outcome": "{told.partition(":")[0]}"' in answer.stdout


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("{ref: 7}", """payload: not JSON: write '{"ref": 7}'"""),
        ("paid", """payload: not JSON: write '"paid"'"""),
        ("1, 2", "payload: not JSON: write '[1, 2]'"),
        ("18446744073709551616", "payload: an integer is beyond 64 bits"),
        ('"' + "x" * 64 * 1024 + '"', "payload: it has 65,538 bytes as JSON, and may have 65,536"),
        ("\udcff", "payload: "),
    ],
)
def test_what_is_no_payload_is_bad_input(typed: str, told: str, url: str, bridge: Bridge) -> None:
    make(bridge)
    result = run("signal", "pay-42", typed, url=url)
    assert (result.returncode, result.stdout) == (BAD_INPUT, "")
    assert result.stderr.startswith(f"expirebridge: {told}")
    task = bridge.get("pay-42")
    assert task is not None
    assert (task.state, task.signal) == (State.PENDING, None)
