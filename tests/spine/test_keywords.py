"""A call of a public function that does not fit says what to write instead."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

import expirebridge
from expirebridge import AsyncBridge, Bridge, InvalidTask
from expirebridge.ledger import Ledger
from expirebridge.task.keywords import advising
from tests.kit.cases import each

UNREACHED = "redis://127.0.0.1:1/1"  # nothing is sent by a call that does not fit
NOT_CALLED = {
    "Call",  # takes the handler's own arguments
    "Codec",  # a protocol
    *("current_task", "hook", "lifespan", "log_event"),  # have no keywords
    *("Counts", "DeclaredLimit", "Group", "GroupListing", "HistoryEntry", "Hold", "Lane"),
    *("Lateness", "LeftOut", "LimitListing", "Listing", "Moving", "QueuePlace", "Reason"),
    *(
        "Series",
        "SeriesListing",
        "SetNumber",
        "Task",
    ),  # and the others above are made here, not by users
}
RAISED = {"Busy", "Discard", "Retry", "Snooze"}


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function, class and method that users call, by its name."""
    for name in expirebridge.__all__:
        thing = getattr(expirebridge, name)
        is_value = inspect.isclass(thing) and issubclass(thing, str | Exception)
        if name not in NOT_CALLED and (not is_value or name in RAISED):
            yield name, thing
    yield "Ledger", Ledger
    for owner, made in ((Bridge, Bridge(UNREACHED)), (Ledger, Ledger("sqlite://"))):
        for name, method in inspect.getmembers(made, inspect.ismethod):
            if not name.startswith("_") and keywords_of(method):
                yield f"{owner.__name__}.{name}", method


def keywords_of(function: Callable[..., Any]) -> list[str]:
    return [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY} and one.name != "self"
    ]


def refusal(function: Callable[..., Any], **keywords: Any) -> str:
    with pytest.raises((TypeError, InvalidTask)) as caught:
        function(**keywords)
    return str(caught.value)


PUBLIC = list(public())


@each(("name", "function"), PUBLIC)
def test_a_keyword_that_is_not_there_is_answered_with_those_that_are(
    name: str, function: Callable[..., Any]
) -> None:
    said = refusal(function, frobnicate=1)
    assert said.startswith(f"{name.rpartition('.')[2]}() got an unexpected keyword argument")
    if "kwargs" in keywords_of(function):
        assert said.endswith("; an argument of the handler goes into kwargs={'frobnicate': ...}")
    else:
        for one in keywords_of(function):
            assert f"{one}=" in said


@each(("name", "function"), PUBLIC)
def test_a_misspelt_keyword_is_answered_with_the_right_one(
    name: str, function: Callable[..., Any]
) -> None:
    for one in keywords_of(function):
        for wrong in {f"{one}s", one[:-2] + one[-1] + one[-2], one.replace("_", "")} - {one}:
            if len(one) > 3 and wrong not in keywords_of(function):
                assert f"{one}=" in refusal(function, **{wrong: 1}), wrong


def test_the_colours_of_a_bridge_say_the_same() -> None:
    bridge, other = Bridge(UNREACHED), AsyncBridge(UNREACHED)
    for name, method in inspect.getmembers(bridge, inspect.ismethod):
        if not name.startswith("_") and keywords_of(method):
            with pytest.raises(TypeError) as caught:
                getattr(other, name)(frobnicate=1).send(None)
            assert str(caught.value) == refusal(method, frobnicate=1)


BRIDGE: Any = Bridge(UNREACHED)
PACKAGE: Any = expirebridge  # type checkers refuse these calls
LATER = datetime(2099, 1, 1, tzinfo=UTC)
SEND = "mail.send"


@each(
    ("call", "said"),
    [
        (lambda: BRIDGE.make_task(SEND, 1, 2, delay="5m"), "handler's arguments are one list"),
        (lambda: BRIDGE.make_task(SEND, 1, 2, 3), "handler's arguments are one list"),
        (lambda: BRIDGE.make_task(SEND, [1], user=2, delay=1), "kwargs={'user': ...}"),
        (lambda: BRIDGE.make_task(SEND, [1], countdown=3), "use delay=, in seconds or as '15m'"),
        (lambda: BRIDGE.make_task(SEND, [1], eta=LATER), "use at=, an aware datetime"),
        (lambda: BRIDGE.make_task(SEND, [1], 1, priority=3), "one alone, urgent=True, of ma"),
        (lambda: BRIDGE.make_task(SEND, [1], 1, queue="q"), "there are no queues: "),
        (lambda: BRIDGE.make_task(SEND, [1], 1, retries=3), "use retry=, such as [15, '1m', '1h']"),
        (lambda: BRIDGE.make_task(SEND, [1], 1, max_retries=3), "use retry=, such as"),
        (lambda: BRIDGE.make_task(SEND, [1], 1, retry=3), "Exponential(attempts=4)"),
        (lambda: BRIDGE.make_task(SEND, [1], at="2h"), "give it as delay='2h'"),
        (lambda: BRIDGE.make_task(SEND, [1], at="2099-01-01T00:00Z"), "datetime.fromisoformat("),
        (lambda: BRIDGE.make_task(SEND, [1], at=3), "such as datetime.now(UTC) + timedelta("),
        (lambda: BRIDGE.make_task(SEND, [1], LATER), "that is a time: give it as at="),
        (lambda: BRIDGE.make_tasks([{"func": SEND, "delay": 1, "queue": 2}]), "there are no queu"),
        (lambda: BRIDGE.schedule("s", SEND, every=60, timezone="UTC"), "use tz="),
        (lambda: BRIDGE.schedule("s", SEND, every=60, priority=1), "one alone, urgent=True"),
        (lambda: BRIDGE.schedule_many([{"id": "s", "func": SEND, "crontab": 1}]), "use cron="),
        (lambda: BRIDGE.schedule_many([{"id": "s", "func": SEND, "timout": 1}]), "timeout=?"),
        (lambda: BRIDGE.hold("mail.send"), "; give by name: func=, tag=, all=, reason="),
        (lambda: BRIDGE.hold(func=SEND, until="2h"), "datetime.now(UTC) + timedelta(seconds=7200)"),
        (lambda: BRIDGE.list(status="failed"), "use state="),
        (lambda: BRIDGE.make_task(SEND, [1], 1, on_event="a.b"), "use on_signal="),
        (lambda: BRIDGE.signal("m1", data=1), "use payload="),
        (lambda: BRIDGE.signal("m1", 1, sender="psp"), "use by="),
        (lambda: BRIDGE.make_group("g", [], callback=1), "use then="),
        (lambda: BRIDGE.retry_failed("m1"), "ids='m1': give a list of ids, such as ['m1']"),
        (lambda: BRIDGE.watch("w", SEND), "such as watch('backup', "),
        (lambda: PACKAGE.Bridge(host="x"), "use url=, such as redis://localhost:6379/1"),
        (lambda: PACKAGE.handler(retries=3), "use retry=, such as"),
        (lambda: PACKAGE.handler(max_retries=3), "use retry=, such as"),
        (lambda: PACKAGE.handler(queue="x"), "there are no queues"),
        (lambda: PACKAGE.handler(priority=3), "one alone, urgent=True"),
        (lambda: BRIDGE.schedule("s", SEND, every=60, urgent=True), "mark the handler: @handler("),
        (lambda: PACKAGE.handler(rate_limit="100/m"), "use rate=, such as Rate(100, '1m')"),
        (lambda: PACKAGE.handler(ttl=5), "use timeout="),
        (lambda: PACKAGE.Rate("100/m"), "such as Rate(100, '1m')"),
        (lambda: PACKAGE.Rate(100, period="1m"), "use every="),
        (lambda: PACKAGE.Limit(5, key="customer"), "use per=, the name of a parameter"),
        (lambda: PACKAGE.Snooze(delay=3), "use after="),
        (PACKAGE.Retry, "such as Retry('15m')"),
        (lambda: PACKAGE.Exponential(3), "; give by name: first=, factor=, longest="),
        (lambda: PACKAGE.Settings(host=3), "use url="),
    ],
)  # fmt: skip
def test_what_others_call_it_is_answered_with_the_name_here(
    call: Callable[[], object], said: str
) -> None:
    with pytest.raises((TypeError, InvalidTask)) as caught:
        call()
    assert said in str(caught.value)


def several() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(BRIDGE, inspect.ismethod):
        with suppress(ValueError):
            if "ids" in inspect.signature(method).parameters:
                yield name, method


@each(("name", "method"), list(several()))
def test_one_id_in_place_of_several_is_refused(name: str, method: Callable[..., Any]) -> None:
    more = {"by": 60} if name == "put_off_all" else {}
    with pytest.raises(InvalidTask, match="give a list of ids, such as"):
        method("m1", **more)


def test_an_error_from_inside_is_left_as_it_is() -> None:
    def inner(*, retry: int) -> None:
        pass

    @advising
    def outer() -> None:
        inner(retries=3)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"inner\(\) got an unexpected keyword argument 'retries'$"):
        outer()
