"""A forecast has the rows that come near in its time."""

import json
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from expirebridge.ledger import Tables
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.invoked import app
from tests.kit.ledgers import LedgerHarness
from tests.kit.steps import server_ms
from tests.ledger.plans import filled, noted, rows_read

HOUR = 3_600_000


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    harness = LedgerHarness(engine, made, store, horizon=3600.0)
    for id, minutes, func in (
        ("near", 30, "mail.send"), ("a", 90, "mail.send"), ("b", 100, "sms.send"),
        ("c", 150, "sms.send"), ("later", 24 * 60, "sms.send"),
    ):  # fmt: skip
        harness.insert(id, minutes * 60_000, func=func)
    harness.settle_down()
    harness.cancel("b")
    return harness


def forecast(url: str, *words: str, ledger: str = "") -> tuple[str, Any]:
    env = {"EXPIREBRIDGE_URL": url, "EXPIREBRIDGE_LEDGER": ledger or None}
    done = CliRunner().invoke(app, ["forecast", "--json", *words], env=env, catch_exceptions=False)
    return done.stderr, json.loads(done.stdout)


def spans(found: Any) -> list[Any]:
    return [(span["count"], span["functions"]) for span in found["spans"]]


def test_rows_that_are_kept_back_are_in_its_bars(harness: LedgerHarness, url: str) -> None:
    shown = harness.engine.url.render_as_string(hide_password=False)
    told, found = forecast(url, "--per", "1h", "--for", "3h", ledger=shown)
    assert told == ""
    assert spans(found) == [
        (1, {"mail.send": 1}), (1, {"mail.send": 1}), (1, {"sms.send": 1})
    ]  # fmt: skip


def test_without_the_ledger_it_says_what_is_missing(harness: LedgerHarness, url: str) -> None:
    harness.settle_down()
    told, found = forecast(url, "--per", "1h", "--for", "3h")
    assert "kept back in SQL" in told
    assert [count for count, _ in spans(found)] == [1, 0, 0]


@pytest.mark.one_database
def test_a_database_that_does_not_answer_is_no_obstacle(harness: LedgerHarness, url: str) -> None:
    harness.settle_down()
    told, found = forecast(
        url, "--per", "1h", "--for", "3h", ledger="postgresql+psycopg://localhost:1/nowhere"
    )
    assert len(told.splitlines()) == 2
    assert "kept back in SQL" in told
    assert [count for count, _ in spans(found)] == [1, 0, 0]


def test_it_reads_only_what_is_due_in_its_time(
    harness: LedgerHarness, engine: Engine, made: Tables, store: Store, with_ledger: Settings
) -> None:
    many = 2_000 if engine.dialect.name == "sqlite" else 10_000
    rows = [
        {"id": f"t{n}", "func": "mail.send", "params": "[1]", "delay_ms": 24 * HOUR}
        for n in range(many)
    ]
    inspector = LedgerInspector(with_ledger)
    with filled(engine, made.task, rows):
        with noted(inspector._engine) as queries:
            found = list(inspector.count_coming(server_ms(store.client), HOUR, 3))
        with engine.connect() as connection:
            read = {
                query[0]: rows_read(connection, query)
                for query in queries
                if "GROUP BY" in query[0]
            }
    assert sum(count for _, _, count in found) == 2
    assert len(read) == 2
    assert max(read.values()) < 100, read
