"""Urgent tasks of a ledger: the row says it, and the task is taken first."""

from typing import Any

import orjson
import pytest
import redis
from sqlalchemy import Engine

from expirebridge.ledger import Ledger
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from expirebridge.urgent.calls import declare_urgent
from tests.kit.ledgers import LedgerHarness
from tests.kit.steps import PREFIX


def taken(store: Store, harness: LedgerHarness, places: int = 1) -> list[str]:
    gate = harness.numbers()[2]
    claim = claiming.claim("t", Settings(), places=places, idle=True, gate=gate)
    return [task.id for task in store.run(claim).tasks]


def test_a_row_arrives_urgent(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    with engine.begin() as session:
        ledger.make_task(session, "mail.send", [1], 0, id="old")
    harness.settle_down()
    with engine.begin() as session:
        made = ledger.make_task(session, "mail.send", [1], 0, id="u", urgent=True)
    assert made.urgent
    assert orjson.loads(harness.row("u").options) == {"urgent": True}
    harness.settle_down()
    with engine.begin() as session:
        row = ledger.get(session, "u")
    assert row is not None
    assert row.urgent
    assert taken(store, harness) == ["u"]
    # A listener has a later look at what the server lost.
    client.flushdb()
    harness.settle_down()
    assert client.zrange(f"{PREFIX}:urgent", 0, -1) == [b"u"]


def test_rows_of_a_marked_handler_arrive_urgent(harness: LedgerHarness, store: Store) -> None:
    store.run(declare_urgent(["mail.urgent"], []))
    harness.insert("old")
    harness.insert("u", func="mail.urgent")
    harness.settle_down()
    assert taken(store, harness) == ["u"]


@pytest.mark.parametrize("value", ["1", '"yes"', "null"])
def test_a_row_that_says_it_otherwise_is_refused(
    value: str, harness: LedgerHarness, store: Store
) -> None:
    harness.insert("u", options=f'{{"urgent":{value}}}')
    harness.settle_down()
    row: Any = harness.row("u")
    assert "urgent: write true or false" in row.message
    assert taken(store, harness) == []
