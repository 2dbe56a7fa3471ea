"""Shapes: whether arguments fit, and the text that says it."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.handlers.signatures import Shape, shape_of
from tests.kit.cases import each

NAMES = ["a", "b", "c", "d", "self", "user_id", "größe", "positional", "text"]


def defined(parameters: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(f"def function({parameters}) -> int: return 1", namespace)  # noqa: S102 - made here
    function: Callable[..., Any] = namespace["function"]
    return function


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., Any]:
    """Functions with parameters of every kind, with types and defaults that a shape leaves out."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=7))
    ends = sorted(draw(st.lists(st.integers(0, len(names)), min_size=2, max_size=2)))
    first_default = draw(st.integers(0, ends[1]))
    parts: list[str] = []
    for place, name in enumerate(names):
        if place == ends[1]:
            parts.append(draw(st.sampled_from(["*", "*rest"])))
        typed = draw(st.sampled_from([name, f"{name}: 'int'"]))
        has_default = place >= first_default if place < ends[1] else draw(st.booleans())
        parts.append(typed + draw(st.sampled_from([" = 1", " = 'a, *'"])) * has_default)
        if place == ends[0] - 1:
            parts.append("/")
    if ends[1] == len(names) and draw(st.booleans()):
        parts.append("*rest")
    parts += draw(st.sampled_from([[], ["**others"]]))
    return defined(", ".join(parts))


KEYWORDS = st.lists(st.sampled_from([*NAMES, "rest", "others", "a b", ""]), unique=True, max_size=5)


@given(functions(), st.integers(0, 8), KEYWORDS)
def test_a_shape_says_of_arguments_what_the_signature_says(
    function: Callable[..., Any], positional: int, keywords: list[str]
) -> None:
    expected = None
    try:
        inspect.signature(function).bind(*range(positional), **dict.fromkeys(keywords, 0))
    except TypeError as error:
        expected = str(error)
    shape = Shape.read(shape_of(function))
    assert shape.known
    assert shape.fits(positional, keywords) == expected


@given(functions())
def test_a_text_is_read_as_the_shape_that_it_was_written_for(function: Callable[..., Any]) -> None:
    shape = Shape.of(function)
    assert Shape.read(str(shape)) == shape
    assert str(Shape.read(str(shape))) == str(shape) == shape_of(function)


PIECES = ["(", ")", "a", "b", "*", "**", "/", ", ", ",", " ", "=...", "=", "?", ".0", "None", "\0"]


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_other_text_is_refused_with_a_value_error(text: str) -> None:
    try:
        shape = Shape.read(text)
    except ValueError:
        return
    assert str(shape) == text


@each(
    "text",
    [
        "", "(", "()x", "a", "(a", "(,)", "(a,b)", "(a, )", "( a)", "(a, a)", "(/)", "(/, a)",
        "(a, /, b, /)", "(*)", "(a, *)", "(*, *, a)", "(*a, *, b)", "(*a, *b)", "(*, **a)",
        "(**a, b)", "(**a, **b)", "(*, a, /)", "(a=..., b)", "(*a=...)", "(a=1)", "(a: int)",
        "(.0)", "(None)", "(lambda)", "(a=...=...)", "(a b)", "(?, a)", "(a) -> int",
        "()" * 100_000,
    ],
)  # fmt: skip
def test_a_text_that_is_not_exactly_a_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a shape") as refused:
        Shape.read(text)
    assert len(str(refused.value)) < 300


@each(
    ("parameters", "text"),
    [
        ("", "()"),
        ("to: int, subject: str = 'hi'", "(to, subject=...)"),
        ("to, /, cc=None, *, urgent, copies: int = 1", "(to, /, cc=..., *, urgent, copies=...)"),
        ("*args: int, **kwargs: str", "(*args, **kwargs)"),
        ("to, *files, urgent=False", "(to, *files, urgent=...)"),
    ],
)  # fmt: skip
def test_a_text_has_names_and_kinds_but_neither_types_nor_values(
    parameters: str, text: str
) -> None:
    assert shape_of(defined(parameters)) == text


def test_a_wrapper_has_the_shape_of_what_it_wraps() -> None:
    send = defined("to, subject")

    @functools.wraps(send)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return send(*args, **kwargs)

    assert shape_of(wrapper) == "(to, subject)"


def unreadable() -> list[Callable[..., Any]]:
    def misled() -> None: ...

    misled.__signature__ = 42  # type: ignore[attr-defined]
    return [misled, iter]


@each("function", unreadable())
def test_a_signature_that_cannot_be_read_is_not_said_to_fit_or_not(
    function: Callable[..., Any],
) -> None:
    shape = Shape.of(function)
    assert str(shape) == "(?)"
    assert Shape.read("(?)") == shape
    assert not shape.known
    assert shape.fits(3, ["nonsense"]) is None
