"""What is relayed of a row, whoever wrote it; rows that cannot be are named, without arguments."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.errors import InvalidTask
from expirebridge.ledger.rows import new_task_of, values_of
from expirebridge.settings import Settings
from expirebridge.task.argument_writer import PLAIN
from expirebridge.task.calls.call import When
from expirebridge.task.new_task import new_task

ROW: dict[str, Any] = {
    "ledger": "default", "id": "x", "generation": 1, "revision": 1, "func": "a.b", "params": "[1]",
    "options": None, "ext_string": None, "wanted": "none", "status": 1, "at_ms": None,
    "delay_ms": 5000, "written": 100_000, "due": None, "retry_times": 0, "message": None,
}  # fmt: skip
FOLDER = Settings().tasks

texts = st.text(st.characters(exclude_categories=["Cs"]))
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)
tags = st.lists(st.from_regex(r"[A-Za-z0-9_.:@/-]{1,20}", fullmatch=True), unique=True)


@given(
    args=st.lists(json, max_size=4),
    kwargs=st.dictionaries(texts.filter(lambda key: key != "*"), json, max_size=3),
    tags=tags,
    delay=st.integers(0, 10**9),
    retry=st.none() | st.lists(st.integers(0, 10**6), min_size=1, max_size=5),
    timeout=st.none() | st.floats(0.001, 10**6),
    late_after=st.none() | st.integers(1, 10**6),
    long=st.booleans(),
)
def test_a_row_asks_for_what_make_task_was_given(long: bool, **given: Any) -> None:
    """Whatever was given, the relay sends what `Bridge.make_task` would."""
    if given["late_after"] is not None:
        given["misfire"] = "skip"
    if long:
        given["args"] = [*given["args"], "x" * 600]
    new = new_task(FOLDER, PLAIN, "mail.send", id="x", **given)
    values = values_of(new, ledger="default", ext=None)
    row = ROW | {name.removeprefix("b_"): value for name, value in values.items()}
    again = new_task_of(row, row["written"])
    assert (again.call, again.when) == (new.call, new.when)
    assert {name: _plain(value) for name, value in again.fields.items()} == {
        name: _plain(value) for name, value in new.fields.items()
    }


def _plain(value: Any) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


@pytest.mark.parametrize(
    ("changes", "now", "when"),
    [
        ({}, 100_000, When(5000, relative=True)),
        ({}, 101_500, When(3500, relative=True)),
        ({}, 999_000, When(0, relative=True)),
        ({}, 90_000, When(5000, relative=True)),  # the database's clock was set back
        ({"at_ms": 7, "delay_ms": None}, 100_000, When(7, relative=False)),
        ({"due": 42}, 100_000, When(42, relative=False)),
    ],
)
def test_a_delay_counts_from_when_the_row_was_written(
    changes: dict[str, Any], now: int, when: When
) -> None:
    assert new_task_of(ROW | changes, now).when == when


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"id": "a b"}, "id="),
        ({"id": "x" * 129}, "id="),
        ({"func": "nothing"}, "func="),
        ({"func": 5}, "func: write text"),
        ({"params": "secret"}, "args: "),
        ({"params": '"secret"'}, "neither an array nor an object"),
        ({"params": b"[]"}, "params: write text"),
        ({"params": '["' + "s" * 65536 + '"]'}, "at most 65,536"),
        ({"options": "{"}, "options: not JSON"),
        ({"options": "[]"}, "options: write one JSON object"),
        ({"options": '{"secret":1}'}, "options: there is no 'secret'"),
        ({"options": '{"tags":"a"}'}, "tags="),
        ({"options": '{"retry":"often"}'}, "retry:"),
        ({"options": '{"timeout":"5"}'}, "timeout:"),
        ({"options": '{"misfire":"maybe"}'}, "misfire:"),
        ({"at_ms": 5}, "one of the two"),
        ({"delay_ms": None}, "one of the two"),
        ({"delay_ms": -1}, "delay_ms:"),
        ({"delay_ms": 2**62}, "delay_ms:"),
        ({"delay_ms": "soon"}, "delay_ms:"),
        ({"delay_ms": None, "at_ms": -1}, "at_ms:"),
        ({"delay_ms": None, "at_ms": 2**60}, "at_ms:"),
        ({"due": -1}, "due:"),
        ({"written": "now"}, "written:"),
        ({"status": 7}, "status, wanted"),
        ({"wanted": "gone"}, "status, wanted"),
        ({"generation": 0}, "generation:"),
        ({"revision": -5}, "revision:"),
        ({"revision": "two"}, "revision:"),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_is_named(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidTask, match=error) as raised:
        new_task_of(ROW | changes, 100_000)
    assert "ssss" not in str(raised.value)
    assert len(str(raised.value)) < 300
