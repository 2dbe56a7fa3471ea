"""A task as the name of its trigger key, and back."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from string import ascii_letters, digits
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from expirebridge.errors import InvalidTask
from expirebridge.task.keys import (
    IN_RECORD,
    MAX_ARGS,
    MAX_FUNC,
    InvalidKey,
    TriggerKey,
    check_args,
    check_func,
    check_id,
    check_tags,
    decode_args,
    encode_args,
    id_for_key,
    parse_key,
)
from tests.kit.cases import each


@dataclass
class Point:
    x: int
    y: int


class Customer(BaseModel):
    name: str


AWKWARD = st.sampled_from(
    ["?", ":?", ":", "\n", "\0", "\U0001f600", "{", "}", "{a}", "@", "*", '"']
)
TEXT = st.lists(st.text(st.characters(exclude_categories=["Cs"])) | AWKWARD, max_size=4).map(
    "".join
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ARGS = st.lists(JSON, max_size=4)
KWARGS = st.dictionaries(TEXT.filter(lambda name: name != "*"), JSON, max_size=4)

IDS = st.text(ascii_letters + digits + "_.:@-", min_size=1, max_size=128)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,19}", fullmatch=True)
FUNCS = st.builds(
    lambda path, name: f"{'/'.join(path)}.{name}", st.lists(NAMES, min_size=1, max_size=5), NAMES
)
HASH_TAGS = st.just("") | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="{}"), max_size=20
).map("{{{}}}".format)

KEYS = st.builds(
    TriggerKey, hash_tag=HASH_TAGS, id=IDS, func=FUNCS, args=st.builds(encode_args, ARGS, KWARGS)
).map(TriggerKey.encode)
PIECES = st.sampled_from(
    [
        b":?", b"?", b":", b"{", b"}", b"[", b"]", b"a.b", b"id", b"/", b"..", b"@", b"1", b",",
        b"\xff", b'{"*":', b'{"a":1}', b"NaN", b"9" * 20, b"\n", b"\0", b"\xc3\xa9", b'"\\ud800"',
    ]
)  # fmt: skip


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


# Round trips


@given(hash_tag=HASH_TAGS, id=IDS, func=FUNCS, args=ARGS, kwargs=KWARGS)
@example(hash_tag="", id="a:", func="a.b", args=["?:?"], kwargs={})
@example(hash_tag="{?:?}", id="a", func="a/b.c", args=[], kwargs={"?": "\0"})
@example(
    hash_tag="{}", id=":", func="_._", args=[-0.0, 2**64 - 1, -(2**63)], kwargs={"": {"*": []}}
)
def test_a_task_comes_back_from_its_key_as_it_was_given(
    hash_tag: str, id: str, func: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    name = TriggerKey(hash_tag=hash_tag, id=id, func=func, args=encode_args(args, kwargs)).encode()
    key = parse_key(name)
    assert key is not None
    assert (key.hash_tag, key.id, key.func) == (hash_tag, id, func)
    # Equality takes 1, 1.0 and True for the same; the text of a value does not.
    assert repr(decode_args(key.args)) == repr((args, kwargs))


@given(args=ARGS, kwargs=KWARGS)
def test_what_a_producer_writes_passes_the_check_of_foreign_arguments(
    args: list[Any], kwargs: dict[str, Any]
) -> None:
    check_args(encode_args(args, kwargs))


@each(
    ("args", "kwargs", "encoded"),
    [
        ([], None, b"[]"),
        ([], {}, b"[]"),
        ((42, "hi"), None, b'[42,"hi"]'),
        ([], {"to": "x"}, b'{"to":"x"}'),
        ([42], {"to": "x"}, b'{"*":[42],"to":"x"}'),
    ],
)
def test_arguments_are_an_array_an_object_or_both(
    args: Sequence[Any], kwargs: dict[str, Any] | None, encoded: bytes
) -> None:
    assert encode_args(args, kwargs) == encoded


def test_a_key_is_written_as_the_format_says() -> None:
    key = TriggerKey(hash_tag="{eb:3}", id="order:42", func="shop/mail.send", args=b'["?"]')
    assert key.encode() == b'{eb:3}order:42:?shop/mail.send?["?"]'
    assert key.call == b'shop/mail.send?["?"]'


def test_arguments_in_the_record_are_told_by_an_at_sign() -> None:
    key = parse_key(b"a:?b.c?@")
    assert key == TriggerKey(id="a", func="b.c", args=IN_RECORD)


def test_nesting_that_json_can_hold_comes_back() -> None:
    assert decode_args(encode_args(nested(200), None)) == (nested(200), {})


# Keys that are not ours, and keys that are but cannot be tasks


@each(
    "name",
    [
        b"",
        b"user:1",
        b"a:?b.c",
        b"a?b.c?[]",
        b"?a:?b.c?",
        b":",
        b"?",
        b"??",
        b"{a:?b.c?[]}",
        b"\xff",
    ],
)
def test_a_key_of_another_form_is_left_alone(name: bytes) -> None:
    assert parse_key(name) is None


@each(
    ("name", "named"),
    [
        (b":?a.b?[]", "id=''"),
        (b"a b:?a.b?[]", "id='a b'"),
        (b"a\n:?a.b?[]", "id="),
        (b"{a}{b}c:?a.b?[]", "id='{b}c'"),
        (b"\xc3\xa9:?a.b?[]", "id"),
        (b"{\xff}a:?a.b?[]", ""),
        (b"a:?b?[]", "func='b'"),
        (b"a:?../a.b?[]", "func='../a.b'"),
        (b"a:?a.\xc3\xa9?[]", "function"),
        (b"a:?a.b?", "args"),
        (b"a:?a.b?hello", "args"),
        (b"a:?a.b?@@", "args"),
        (b'a:?a.b?{"*":1}', "'*'"),
    ],
)
def test_a_key_of_our_form_that_cannot_be_a_task_says_why(name: bytes, named: str) -> None:
    with pytest.raises(InvalidKey) as caught:
        parse_key(name)
    assert named in str(caught.value)
    assert caught.value.id == id_for_key(name)
    assert check_id(caught.value.id)


def check_any_name(name: bytes) -> None:
    with suppress(InvalidKey):
        key = parse_key(name)
        assert key is None or key.encode() == name


@given(st.binary() | st.lists(PIECES, max_size=10).map(b"".join))
@example(b"a:?b.c?" + b"[" * 100_000)
@example(b"a:?b.c?" + b"[" * 500 + b"]" * 500)
@example(b"a:?b.c?[" + b"9" * 60_000 + b"]")
@example(b"a:?b.c?[1e999]")
def test_any_name_is_read_refused_or_left_alone(name: bytes) -> None:
    check_any_name(name)


@given(key=KEYS, patch=st.binary(max_size=4) | PIECES, data=st.data())
def test_a_damaged_key_is_read_refused_or_left_alone(
    key: bytes, patch: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(key)))
    end = data.draw(st.integers(start, min(len(key), start + 8)))
    check_any_name(key[:start] + patch + key[end:])


def test_the_id_for_a_key_tells_keys_apart() -> None:
    assert id_for_key(b"a") == "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"
    assert id_for_key(b"a") != id_for_key(b"b")


# Arguments that JSON would change


@each(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        2**64,
        -(2**63) - 1,
        10**30,
        (1, 2),
        (),
        {1},
        b"x",
        datetime(2030, 1, 1, tzinfo=UTC),
        Decimal("1.5"),
        UUID(int=1),
        object(),
        "\ud800",
        {"\ud800": 1},
    ],
)
def test_a_value_that_json_would_change_is_refused_by_its_place(value: object) -> None:
    with pytest.raises(InvalidTask) as caught:
        encode_args([0, {"x": value, "y": 1}], None)
    assert str(caught.value).startswith("args[1]['x'] = ")
    with pytest.raises(InvalidTask, match=r"\['x'\]\[0\] = "):
        encode_args([], {"x": [value]})


@each(
    ("value", "instead"),
    [
        (UUID(int=1), "pass str(value)"),
        (Decimal("1.5"), "pass str(value)"),
        (Path("a"), "pass str(value)"),
        (datetime(2030, 1, 1, tzinfo=UTC), "pass value.isoformat()"),
        (date(2030, 1, 1), "pass value.isoformat()"),
        (time(8), "pass value.isoformat()"),
        (timedelta(hours=1), "pass value.total_seconds()"),
        (Enum("Colour", "RED").RED, "pass value.value"),  # type: ignore[attr-defined]
        ((1, 2), "pass list(value)"),
        ({1}, "pass list(value)"),
        (frozenset([1]), "pass list(value)"),
        (Point(1, 2), "pass dataclasses.asdict(value)"),
        (Customer(name="Ann"), "pass value.model_dump(mode='json')"),
    ],
)
def test_what_json_lacks_is_refused_with_what_to_pass_instead(value: object, instead: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        encode_args([{"x": value}], None)
    assert str(caught.value).startswith("args[0]['x'] = ")
    assert f": JSON has no {type(value).__name__}; {instead}, or mark the handler with " in str(
        caught.value
    )


def test_what_has_no_counterpart_is_refused_without_advice() -> None:
    with pytest.raises(InvalidTask, match=r"^args\[0\] = nan: JSON would change it silently$"):
        encode_args([float("nan")], None)


@each("key", [1, 1.5, None, True, b"x", ("a",)])
def test_a_key_that_is_not_text_is_refused_by_its_place(key: object) -> None:
    with pytest.raises(InvalidTask) as caught:
        encode_args([0, {"x": {key: 1}}], None)
    assert str(caught.value).startswith(f"args[1]['x']: the key {key!r} is not text")


def test_a_keyword_that_is_not_text_is_refused() -> None:
    bad: dict[Any, Any] = {1: 2}
    with pytest.raises(InvalidTask, match="the key 1 is not text"):
        encode_args([], bad)


def test_a_positional_argument_beside_keywords_is_named_as_such() -> None:
    with pytest.raises(InvalidTask, match=r"^args\[1\] = nan"):
        encode_args([0, float("nan")], {"to": "x"})


def test_a_keyword_argument_is_named_as_such() -> None:
    with pytest.raises(InvalidTask, match=r"^kwargs\['to'\] = nan"):
        encode_args([], {"to": float("nan")})


@each("depth", [300, 500, 1_500, 50_000])
def test_nesting_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(InvalidTask, match="args"):
        encode_args(nested(depth), None)


def test_arguments_of_64_kib_pass_and_one_byte_more_is_refused() -> None:
    longest = "x" * (MAX_ARGS - len('[""]'))
    assert len(encode_args([longest], None)) == MAX_ARGS
    with pytest.raises(InvalidTask, match="65,537 bytes as JSON; at most 65,536"):
        encode_args([longest + "x"], None)


def test_a_keyword_named_star_is_refused() -> None:
    with pytest.raises(InvalidTask, match=r"'\*' is taken"):
        encode_args([], {"*": [1]})


@each("args", ["hi", b"hi", 42, None, {"a": 1}, {1}])
def test_positional_arguments_that_are_no_list_are_refused(args: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^args="):
        encode_args(args, None)


@each("kwargs", ["hi", [1], 42])
def test_keyword_arguments_that_are_no_mapping_are_refused(kwargs: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^kwargs="):
        encode_args([], kwargs)


# Arguments of foreign tasks


@each(
    ("encoded", "why"),
    [
        (b"", "args: "),
        (b"42", "neither an array nor an object"),
        (b'"hi"', "neither an array nor an object"),
        (b"null", "neither an array nor an object"),
        (b'{"*":42}', "not an array"),
        (b"[1,]", "args: "),
        (b"[1] ]", "args: "),
        (b"[NaN]", "args: "),
        (b"[Infinity]", "args: "),
        (b"[1e999]", "args: "),
        (b"[18446744073709551616]", "args: an integer is beyond 64 bits"),
        (b'{"a":[-9223372036854775809]}', "args: an integer is beyond 64 bits"),
        (b"[" + b"1" * 300 + b"]", "beyond 64 bits"),
        (b"[" + b"1" * 60_000 + b"]", "args: "),
        (b'["\xff"]', "args: "),
        (b'["\\ud800"]', "args: "),
        (b"[" * 2_000 + b"]" * 2_000, "args: "),
        (b"[" * 60_000, "args: "),
        (b"[" + b" " * MAX_ARGS + b"]", "65,538 bytes; at most 65,536"),
    ],
)
def test_foreign_arguments_that_would_not_reach_a_handler_unchanged_are_refused(
    encoded: bytes, why: str
) -> None:
    with pytest.raises(InvalidTask) as caught:
        check_args(encoded)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 300
    if len(encoded) <= MAX_ARGS:
        with pytest.raises(ValueError, match=r"."):  # even if somebody has it run all the same
            decode_args(encoded)


@each("depth", [500, 1_000, 1_020, 5_000])
def test_arguments_that_are_nested_deep_are_read_or_refused(depth: int) -> None:
    """How deep a reader gets depends on Python's version; a RecursionError is for nobody."""
    encoded = b"[" * depth + b"1" * 19 + b"]" * depth
    with suppress(InvalidTask):
        check_args(encoded)
    with suppress(ValueError):
        args, kwargs = decode_args(encoded)
        assert (len(args), kwargs) == (1, {})


@each(
    ("encoded", "args", "kwargs"),
    [
        (b" [ 1 , 2.5e3 ] ", [1, 2500.0], {}),
        (b'{"*": [1], "a": "\\u00e9"}', [1], {"a": "é"}),
        (b'{"*": []}', [], {}),
        (b"[18446744073709551615, -9223372036854775808]", [2**64 - 1, -(2**63)], {}),
    ],
)
def test_foreign_json_may_be_written_in_its_own_way(
    encoded: bytes, args: list[Any], kwargs: dict[str, Any]
) -> None:
    check_args(encoded)
    assert decode_args(encoded) == (args, kwargs)


@given(JSON)
def test_foreign_json_of_another_writer_is_accepted_if_it_holds_arguments(value: Any) -> None:
    encoded = json.dumps(value).encode()
    if isinstance(value, list) or (isinstance(value, dict) and "*" not in value):
        check_args(encoded)
    elif not isinstance(value, dict):
        with pytest.raises(InvalidTask):
            check_args(encoded)


# Ids, functions and tags


@each("id", ["a", "0", "order:42", "a.b@c_d-e", ":", "x" * 128])
def test_a_legal_id_is_returned_as_it_is(id: str) -> None:
    assert check_id(id) == id


@each("id", ["", "?", "a?b", "a b", "{a}", "a/b", "é", "a\n", "\0", "x" * 129, None, 42, b"a"])
def test_an_illegal_id_is_refused(id: object) -> None:
    with pytest.raises(InvalidTask, match=r"^id="):
        check_id(id)


@each("func", ["a.b", "_a._b", "mail.send", "shop/eu_1/mail.send2", "a." + "b" * (MAX_FUNC - 2)])
def test_a_legal_function_name_is_returned_as_it_is(func: str) -> None:
    assert check_func(func) == func


@each(
    "func",
    [
        "", "a", ".", "a.", ".b", "a..b", "a.b.c", "a/b", "a/b.c/d", "a//b.c", "a/.b", "./a.b",
        "../x.y", "a/../b.c", "/abs/x.y", "a\\b.c", "1a.b", "a.1b", "a-b.c", "a.b-c", "a.b()",
        "a.b ", " a.b", "a.b\n", "a.b\0", "a?.b", "é.b", "a.é", "a.\u00b2", "\uff41.b",
        "a." + "b" * (MAX_FUNC - 1),
    ],
)  # fmt: skip
def test_an_illegal_function_name_is_refused(func: str) -> None:
    with pytest.raises(InvalidTask, match=r"^func="):
        check_func(func)


def test_tags_are_kept_in_order_and_once_each() -> None:
    assert check_tags(["b", "a/1", "b", "x" * 128]) == ("b", "a/1", "x" * 128)


@each("tag", ["", " ", "a b", "a\n", "é", "{a}", "a?b", "x" * 129, 42, None])
def test_an_illegal_tag_is_refused(tag: object) -> None:
    with pytest.raises(InvalidTask, match=r"^tag "):
        check_tags(["fine", tag])


def test_one_string_is_not_taken_for_a_list_of_tags() -> None:
    with pytest.raises(InvalidTask, match=r"^tags='mail'"):
        check_tags("mail")
