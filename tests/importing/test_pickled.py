"""Pickles of strangers: plain data is read, and nothing else in one is ever run."""

import contextlib
import os
import pickle
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.importing.job import Refused
from expirebridge.importing.pickled import (
    LARGEST,
    Symbol,
    load_plain,
    load_symbols,
    plain_of,
)

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain, st.sampled_from(PROTOCOLS))
def test_plain_data_comes_back_as_it_was(value: Any, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol)) == value


def test_tuples_become_lists() -> None:
    assert load_plain(pickle.dumps({"a": (1, (2, [()]))})) == {"a": [1, [2, [[]]]]}


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_code_is_run(tmp_path: Path, protocol: int) -> None:
    with pytest.raises(Refused, match="a class"):
        load_plain(pickle.dumps({"f": Evil(tmp_path / "ran")}, protocol))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "value",
    [datetime(2031, 1, 1, tzinfo=UTC), Decimal(1), {1}, b"x", OrderedDict(), 1j, bytearray(1)],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_else_is_refused(value: object, protocol: int) -> None:
    with pytest.raises(Refused, match="more than plain data"):
        load_plain(pickle.dumps([value], protocol))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x85\xa1t\xc0",  # msgpack
        b'{"f": "send"}',
        b"\x80\x04",
        b"\x80\x04.",
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.",  # a text longer than the pickle
        b"\x80\x04]}(\x4b\x01us.",
        pickle.dumps({1: 2}),
        pickle.dumps(nested(60)),  # 2 ** 60 values, once it is written out
        pickle.dumps([None] * 100_001),
        pickle.dumps("x" * LARGEST),
        b"\x80\x04csys\nexit\n.",
        b"\x80\x04\x82\x01.",  # a class by its number
        b"\x80\x04K\x01Q.",  # a persistent id
    ],
)
def test_what_is_broken_or_too_large_is_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        load_plain(raw)


def test_a_place_in_the_memo_that_would_take_gigabytes_is_refused_before() -> None:
    with pytest.raises(Refused, match="far more memory than it has bytes"):
        load_plain(b"\x80\x04]r\xff\xff\xff\x7f.")


@given(st.binary(max_size=60))
def test_whatever_the_bytes_are_they_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(Refused):
        load_plain(b"\x80\x04" + raw)


# Pickles with objects, read as symbols.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_symbols_run_no_code(tmp_path: Path, protocol: int) -> None:
    found = load_symbols(pickle.dumps({"f": Evil(tmp_path / "ran")}, protocol))["f"]
    assert not (tmp_path / "ran").exists()
    assert type(found).path == f"{os.mkdir.__module__}.mkdir"
    assert found.args == (str(tmp_path / "ran"),)


class Slotted:
    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name = "slot"


class Words(list[str]):
    """A class of lists."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_symbols_keep_what_an_object_has(protocol: int) -> None:
    value = [
        Slotted(),
        Evil(Path("x")),
        datetime(2031, 1, 1, tzinfo=UTC),
        Words("ab"),
        {1: Slotted},
    ]
    slotted, _, moment, words, classes = load_symbols(pickle.dumps(value, protocol))
    assert (type(slotted).path, slotted.state) == (f"{__name__}.Slotted", {"name": "slot"})
    assert type(moment).path == "datetime.datetime"
    assert isinstance(words, Symbol)
    assert issubclass(classes[1], Symbol)
    with pytest.raises(Refused, match="an object: datetime"):
        plain_of([moment])


def test_calls_of_calls_are_named_after_the_first() -> None:
    deep = b"\x80\x02cos\nmkdir\n" + b")R" * 30_000 + b"."
    with pytest.raises(Refused, match="an object: os"):
        plain_of([load_symbols(deep)])


def test_a_broken_pickle_is_refused_as_symbols_too() -> None:
    for raw in (b"x", b"\x80\x02cos\nmkdir\n)R)R", b"\x80\x02Nb.", b"\x80\x05\x8c\x01a\x93."):
        with pytest.raises(Refused):
            load_symbols(raw)
