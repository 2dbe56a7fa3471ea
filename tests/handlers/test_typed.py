"""Typed handlers: what a producer gives is stored as JSON, and reaches the handler unchanged."""

import asyncio
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from expirebridge import Call, Discard, handler
from expirebridge.bridge import Operations
from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Handler, Registry, typed_arguments
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings
from expirebridge.task.keys import decode_args, encode_args
from tests.kit.cases import each
from tests.kit.first_calls import first_call
from tests.kit.modules import forgotten, put


class Colour(Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Line:
    item: UUID
    price: Decimal
    until: date | None = None


class Order(BaseModel):
    number: int = Field(alias="no")
    lines: list[Line]
    placed: datetime


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ZONES = st.none() | st.integers(-23 * 60, 23 * 60).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
MOMENTS = st.datetimes(timezones=ZONES | st.just(UTC))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
LINES = st.builds(Line, item=st.uuids(), price=DECIMALS, until=st.none() | st.dates())
ORDERS = st.builds(
    lambda number, lines, placed: Order(no=number, lines=lines, placed=placed),
    INTEGERS, st.lists(LINES, max_size=3), MOMENTS,
)  # fmt: skip
SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, INTEGERS), (str, TEXT), (bool, st.booleans()), (float, FLOATS), (UUID, st.uuids()),
    (datetime, MOMENTS), (date, st.dates()), (time, st.times()), (Decimal, DECIMALS),
    (timedelta, st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999))),
    (Colour, st.sampled_from(Colour)), (Line, LINES), (Order, ORDERS),
]  # fmt: skip


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """An annotation, and a value of that type."""
    # Any: these types are not known to type checkers.
    annotation: Any
    annotation, values = draw(st.sampled_from(SIMPLE))
    for _ in range(draw(st.integers(0, 2))):
        annotation, values = draw(
            st.sampled_from(
                [
                    (annotation | None, st.none() | values),
                    (list[annotation], st.lists(values, max_size=3)),
                    (dict[str, annotation], st.dictionaries(TEXT, values, max_size=3)),
                    (tuple[annotation, ...], st.lists(values, max_size=3).map(tuple)),
                ]
            )
        )
    return annotation, draw(values)


JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def taking(annotation: Any) -> Callable[[Any], Any]:
    """A typed handler of one argument, `value`, which it returns."""

    def take(value: Any) -> Any:
        return value

    take.__annotations__["value"] = annotation
    return handler(typed=True)(take)


def passed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function returns if it is called with these arguments, after they were stored."""
    typed = typed_arguments(function)
    assert typed is not None
    stored = encode_args(*typed.write(args, kwargs))
    values, named = decode_args(stored)
    assert encode_args(values, named) == stored
    return Handler.of("shop.take", function).call(*values, **named)


# Round trips


@given(typed_values())
def test_a_value_reaches_the_handler_as_it_was_given(typed: tuple[Any, Any]) -> None:
    annotation, value = typed
    received = passed(taking(annotation), value)
    assert received == value
    assert type(received) is type(value)
    if isinstance(value, Decimal):  # 1.1 == 1.10
        assert str(received) == str(value)


@given(st.lists(st.uuids(), min_size=2, max_size=5), st.dictionaries(TEXT, st.uuids(), max_size=3))
def test_each_argument_is_converted_wherever_the_signature_has_its_place(
    positional: list[UUID], others: dict[str, UUID]
) -> None:
    @handler(typed=True)
    def take(a: UUID, /, b: UUID, *rest: UUID, c: UUID | None = None, **others: UUID) -> Any:
        return [a, b, *rest], others | ({"c": c} if c is not None else {})

    others = {name: value for name, value in others.items() if name not in {"b", "*"}}
    assert passed(take, *positional, **others) == (positional, others)
    assert passed(take, *positional[:1], b=positional[1], **others) == (positional[:2], others)


def test_a_keyword_may_have_the_name_of_a_positional_parameter() -> None:
    @handler(typed=True)
    def take(a: UUID, /, **others: date) -> Any:
        return a, others

    received = passed(take, UUID(int=1), a=date(2030, 1, 1))
    assert received == (UUID(int=1), {"a": date(2030, 1, 1)})


def test_what_has_no_annotation_or_any_stays_as_it_is() -> None:
    @handler(typed=True)
    def take(plain, anything: Any, moment: date) -> Any:  # type: ignore[no-untyped-def]
        return plain, anything, moment

    assert passed(take, [1], {"x": None}, date(2030, 1, 1)) == ([1], {"x": None}, date(2030, 1, 1))


def test_the_stored_text_is_what_another_client_would_write() -> None:
    @handler(typed=True)
    def take(id: UUID, at: datetime, price: Decimal, colour: Colour, order: Order) -> None: ...

    typed = typed_arguments(take)
    assert typed is not None
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    order = Order(no=7, lines=[Line(UUID(int=2), Decimal("1.50"))], placed=moment)
    args, _ = typed.write([UUID(int=1), moment, Decimal("2.10"), Colour.RED, order], {})
    assert args == [
        "00000000-0000-0000-0000-000000000001",
        "2030-01-02T03:04:05Z",
        "2.10",
        "red",
        {
            "no": 7,
            "lines": [{"item": str(UUID(int=2)), "price": "1.50", "until": None}],
            "placed": "2030-01-02T03:04:05Z",
        },
    ]


def test_an_async_handler_stays_async() -> None:
    @handler(typed=True)
    async def take(value: UUID) -> UUID:
        return value

    described = Handler.of("shop.take", take)
    assert described.is_async
    assert inspect.signature(described.call) == inspect.signature(take)
    assert asyncio.run(described.call(str(UUID(int=1)))) == UUID(int=1)


def test_the_function_itself_can_be_called_as_before() -> None:
    take = taking(UUID)
    assert take(17) == 17


def test_a_handler_that_is_not_typed_is_called_without_a_detour() -> None:
    def take(value: UUID) -> None: ...

    assert Handler.of("shop.take", take).call is take
    assert typed_arguments(take) is None


# What a producer gets wrong


@each(
    ("annotation", "value", "reason"),
    [
        (int, "17", "value is of type str, which does not fit int (Input should be a valid int"),
        (int, True, "value is of type bool, which does not fit int ("),
        (bool, 1, "value is of type int, which does not fit bool ("),
        (str, 17, "value is of type int, which does not fit str ("),
        (float, "1.5", "value is of type str, which does not fit float ("),
        (list[int], [1, "2"], "which does not fit list[int] (1: Input should be a valid integer)"),
        (dict[str, int], {"a": None}, "does not fit dict[str, int] (a: Input should be a valid"),
        (int | None, "x", "value is of type str, which does not fit int | None ("),
        (int | str, [], "does not fit int | str (int: Input should be a valid integer; str: "),
        (UUID, str(UUID(int=1)), "value is of type str, which does not fit "),
        (list[int], ["a"] * 9, "; and 6 more)"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_parameter(
    annotation: Any, value: object, reason: str
) -> None:
    with pytest.raises(InvalidTask) as caught:
        passed(taking(annotation), value)
    assert reason in str(caught.value)
    assert str(caught.value).endswith(": pass a value of that type, or correct the annotation")


def test_an_int_is_fine_for_a_float() -> None:
    assert passed(taking(float), 17) == 17


class Loud(Order):
    """More than the annotation says."""

    volume: int = 11


@each(
    ("annotation", "value", "reason"),
    [
        (bytes, b"\xff", "invalid utf-8"),
        (object, UUID(int=1), "would not receive an equal value"),
        (dict, {1: 2}, "would not receive an equal value"),
        (float | None, float("nan"), "would not receive an equal value"),
        (Order, Loud(no=1, lines=[], placed=datetime(2030, 1, 1)), "Loud cannot be stored as"),
        (str | UUID, str(UUID(int=1)), "would not receive an equal value"),
        (datetime, datetime(2030, 1, 1, tzinfo=timezone(timedelta(seconds=59))), "equal value"),
    ],
)
def test_what_would_reach_the_handler_changed_is_refused(
    annotation: Any, value: object, reason: str
) -> None:
    with pytest.raises(InvalidTask, match=r"^value") as caught:
        passed(taking(annotation), value)
    assert reason in str(caught.value)


# What another client writes


@given(st.sampled_from(SIMPLE), JSON)
def test_json_of_any_kind_is_read_or_refused_by_its_parameter(
    typed: tuple[Any, Any], written: Any
) -> None:
    described = Handler.of("shop.take", taking(typed[0]))
    try:
        received = described.call(written)
    except Discard as refused:
        reason = str(refused)
        assert reason.startswith("its arguments do not fit: value is of type ")
        assert "pydantic.dev" not in reason
    else:
        assert isinstance(received, typed[0])


@each(
    ("annotation", "written"),
    [(int, "17"), (int, 17.0), (int, True), (bool, 1), (str, 17), (float, "1.5"), (date, 0)],
)
def test_json_of_another_type_is_not_bent_to_fit(annotation: Any, written: object) -> None:
    with pytest.raises(Discard, match=f"is of type {type(written).__name__}, which does not fit"):
        Handler.of("shop.take", taking(annotation)).call(written)


def test_json_that_is_nested_too_deep_is_refused() -> None:
    nested = orjson.loads(b"[" * 900 + b"]" * 900)
    with pytest.raises(Discard, match="its arguments do not fit: value"):
        Handler.of("shop.take", taking(list[Any])).call(nested)


def test_a_secret_is_not_part_of_the_reason() -> None:
    with pytest.raises(Discard) as refused:
        Handler.of("shop.take", taking(int)).call("a secret")
    assert "secret" not in str(refused.value)


def test_arguments_of_a_wrong_number_are_for_the_call_to_refuse() -> None:
    function = Handler.of("shop.take", taking(UUID)).call
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        function(str(UUID(int=1)), 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        function(str(UUID(int=1)), colour="red")


def test_a_wrong_number_counts_before_a_wrong_type() -> None:
    """A listener with other code may know what to do with another number of arguments."""
    function = Handler.of("shop.take", taking(UUID)).call
    with pytest.raises(TypeError, match="too many positional arguments"):
        function("nonsense", 2)


# What a handler gets wrong


class Unknown:
    """A type that pydantic cannot convert."""


def test_an_annotation_that_cannot_be_converted_is_named_at_the_start() -> None:
    with pytest.raises(HandlersError, match=r"line \d+\): a typed handler: value: .*Unknown cann"):
        Handler.of("shop.take", taking(Unknown))


def test_an_annotation_that_cannot_be_found_is_named_at_the_start() -> None:
    with pytest.raises(HandlersError, match=r"name 'Missing' is not defined.*TYPE_CHECKING"):
        Handler.of("shop.take", taking("Missing"))


def test_without_pydantic_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "expirebridge.handlers.typed", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(HandlersError, match=r"pydantic.*pip install 'expirebridge\[typed\]'"):
        Handler.of("shop.take", taking(UUID))


def test_typed_is_a_switch() -> None:
    maybe: Any = "yes"
    with pytest.raises(InvalidTask, match="typed='yes': True or False"):
        handler(typed=maybe)


# From make_task


SHOP = """
    from uuid import UUID

    from expirebridge import handler

    class Unknown: ...

    @handler(typed=True)
    def rate(order: UUID, *, urgent: bool = False) -> None: ...
"""
BROKEN = """
    @handler(typed=True)
    def broken(order: Unknown) -> None: ...
"""


def test_a_producer_gives_values_with_the_function_itself(tmp_path: Path) -> None:
    folder = tmp_path / f"tasks_{UUID(int=17).hex}"
    put(folder, "shop.py", SHOP)
    operations = Operations(Settings(tasks=folder), Hooks())
    with forgotten(tmp_path):
        Registry.load(folder)
        rate = sys.modules[f"{folder.name}.shop"].rate
        for make in (
            operations.make_task(rate, [UUID(int=1)], 60, kwargs={"urgent": True}),
            operations.make_task(Call(rate, UUID(int=1), urgent=True), delay=60),
            operations.make_tasks([{"func": Call(rate, UUID(int=1), urgent=True), "delay": 60}]),
        ):
            sent = first_call(make).arguments
            stored = f'shop.rate?{{"*":["{UUID(int=1)}"],"urgent":true}}'
            assert stored.encode() in sent
        with pytest.raises(InvalidTask, match=r"^rate: order is of type int, which does not fit"):
            next(iter(operations.make_task(rate, [17], 60)))
        with pytest.raises(InvalidTask, match=r"^args='x': give a list of positional arguments"):
            next(iter(operations.make_task(rate, "x", 60)))
        with pytest.raises(InvalidTask, match=r"JSON has no UUID; pass str\(value\), or mark"):
            next(iter(operations.make_task("shop.rate", [UUID(int=1)], 60)))


def test_a_producer_learns_of_an_annotation_that_cannot_be_converted(tmp_path: Path) -> None:
    folder = tmp_path / f"tasks_{UUID(int=18).hex}"
    put(folder, "shop.py", SHOP + BROKEN)
    operations = Operations(Settings(tasks=folder), Hooks())
    with forgotten(tmp_path):
        with pytest.raises(HandlersError, match=r"order: .*Unknown cannot be converted"):
            Registry.load(folder)
        broken = sys.modules[f"{folder.name}.shop"].broken
        with pytest.raises(InvalidTask, match=r"^func=broken: .*Unknown cannot be converted"):
            next(iter(operations.make_task(broken, [1], 60)))
