"""Whatever a record or a row holds, and whoever wrote it: no other row waits for it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from expirebridge.ledger.engine import engine_of
from expirebridge.ledger.relay import finish
from expirebridge.ledger.rows import Status, SyncState
from tests.kit.ledgers import LedgerHarness
from tests.kit.servers import PART
from tests.kit.steps import server_ms

HOUR: Final = 3_600_000
_each_time = examples(
    max_examples=int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "3" if PART == "quick" else "20")),
    suppress_health_check=list(HealthCheck), deadline=None,
)  # fmt: skip
_numbers = count(1)

numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.sampled_from([b"1e400", b"-1e400", b"nan", b"0x10", b" 1", b"1.5", b"", b"12 34"]),
)
raw = st.one_of(numbers, st.binary(max_size=60), st.text(max_size=60).map(lambda it: it.encode()))
versions = st.tuples(numbers, numbers).map(b" ".join) | raw
fields = st.fixed_dictionaries(
    {},
    optional={
        "error": raw, "attempt": raw, "due": raw, "rearm": raw, "next": raw, "cancel": raw,
        "left": raw, "ledger": versions, "state": raw, "call": raw, "args": raw, "tick": raw,
        "key": raw, "tags": raw, "started": raw, "history": raw, "retry": raw, "ttl": raw,
    },
)  # fmt: skip
states = st.sampled_from(["pending", "running", "paused", "waiting", "failed", "succeeded"])


@pytest.fixture
def listeners(harness: LedgerHarness) -> Iterator[LedgerHarness]:
    """The same ledger, as a listener is connected to it."""
    engine = engine_of(harness.engine.url)
    yield replace(harness, engine=engine)
    engine.dispose()


def relay_until(harness: LedgerHarness, holds: Any) -> None:
    """Make batches until the rows say so; each goes on from what the last one left."""
    relay = harness.relay()
    for _ in range(6):
        finish(relay.carry())
        finish(relay.bring_back())
        if holds():
            return
    raise AssertionError("another row holds this one up")


@pytest.mark.parametrize(
    "kind", ["hash", *(pytest.param(kind, marks=pytest.mark.rest) for kind in ("text", "list"))]
)
@given(written=fields, state=states, mark=st.floats(0), stray=st.binary(max_size=140))
@example(written={"error": b"bad \x00 text"}, state="failed", mark=2e18, stray=b"\x00")
@example(written={"error": "😀".encode()}, state="failed", mark=1.0, stray="😀".encode())
@example(written={"attempt": b"1000000000000"}, state="running", mark=1.0, stray=b"")
@example(written={"ledger": b"1" * 30 + b" 1"}, state="failed", mark=1.0, stray=b"\xff")
@_each_time
def test_no_record_holds_up_another_row(
    harness: LedgerHarness, listeners: LedgerHarness, kind: str, written: dict[Any, Any],
    state: str, mark: float, stray: bytes,
) -> None:  # fmt: skip
    """What other clients may do to a record, and to the set of ids that changed."""
    number, client = next(_numbers), harness.store.client
    bad, good, new = f"bad{number}", f"good{number}", f"new{number}"
    harness.insert(bad, HOUR)
    harness.insert(good, HOUR)
    harness.settle_down()
    record = f"expirebridge:task:{bad}"
    if kind == "text":
        client.set(record, b"x")
    elif kind == "list":
        client.delete(record)
        client.rpush(record, "x")
    else:
        client.hset(record, mapping={"state": state.encode()} | written)
        client.zrem("expirebridge:pending", bad)
        client.zadd(f"expirebridge:{state}", {bad: server_ms(client)})
    client.zadd("expirebridge:dirty", {bad.encode(): mark, stray: mark})
    # First what comes back: a row that asks for something is not written.
    client.hset(f"expirebridge:task:{good}", "error", "said")
    client.zadd("expirebridge:dirty", {good: 1})
    relay_until(listeners, lambda: harness.row(good).message == "said")
    harness.cancel(good)
    harness.insert(new, HOUR)
    harness.change(bad, at_ms=server_ms(client) + HOUR, delay_ms=None, due=None)
    relay_until(
        listeners,
        lambda: (
            harness.status(good) is Status.CANCELLED and harness.row(new).todo == SyncState.NOTHING
        ),
    )


any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
any_number = st.one_of(st.integers(-(2**63), 2**63 - 1), st.none())
rows = st.fixed_dictionaries(
    {},
    optional={
        "func": any_text, "params": any_text, "options": any_text, "ext_string": any_text,
        "wanted": any_text, "at_ms": any_number, "delay_ms": any_number, "written": any_number,
        "due": any_number, "generation": any_number, "revision": any_number,
        "retry_times": any_number, "message": any_text, "id": any_text, "stamp": any_number,
        "status": st.sampled_from([1, 10, 20, 30]), "created": any_number, "modified": any_number,
    },
)  # fmt: skip
stored_as = st.sampled_from(["it is", "blob", "text"])
"""SQLite keeps what it is given, whatever the column is."""


@given(written=rows, as_=stored_as)
@example(written={"params": "\x00"}, as_="it is")
@example(written={"params": '["😀"]'}, as_="it is")
@example(written={"func": "\xff"}, as_="text")
@example(written={"params": "\xff"}, as_="blob")
@_each_time
def test_no_row_holds_up_another(
    harness: LedgerHarness, listeners: LedgerHarness, written: dict[str, Any], as_: str
) -> None:
    """What other programs may insert, as far as the database takes it."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": f"bad{number}",
        "func": "a.b",
        "params": "[]",
        "at_ms": None,
        "delay_ms": None,
    }
    values |= written
    if values["at_ms"] is None and values["delay_ms"] is None:
        values["delay_ms"] = HOUR
    columns, shown = ", ".join(values), ", ".join(f":{name}" for name in values)
    if harness.engine.dialect.name == "sqlite" and as_ != "it is":
        values |= {
            name: value.encode("latin-1", "replace")
            for name, value in values.items() if isinstance(value, str) and name != "id"
        }  # fmt: skip
        if as_ == "text":
            shown = ", ".join(
                f"CAST(:{name} AS TEXT)" if isinstance(value, bytes) else f":{name}"
                for name, value in values.items()
            )
    try:
        with harness.engine.begin() as connection:
            connection.execute(
                text(f"INSERT INTO expirebridge_task ({columns}) VALUES ({shown})"),  # noqa: S608
                values,
            )
    except (SQLAlchemyError, UnicodeError):
        return  # the database does not take it
    try:
        good = f"good{number}"
        harness.insert(good, HOUR)
        relay_until(listeners, lambda: harness.row(good).todo == SyncState.NOTHING)
        harness.store.client.zadd("expirebridge:dirty", {str(values["id"]): 1})
        harness.cancel(good)
        relay_until(listeners, lambda: harness.status(good) is Status.CANCELLED)
    finally:
        with harness.engine.begin() as connection:
            connection.execute(text("DELETE FROM expirebridge_task"))
