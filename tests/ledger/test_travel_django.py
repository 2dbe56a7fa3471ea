"""Django's tests: a TestCase, whose transaction never commits, and one that commits."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import Engine

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql"}

PROGRAM = """
import json, sys, unittest
from django.conf import settings

chosen = json.loads(sys.argv.pop())
settings.configure(DATABASES={"default": json.loads(sys.argv.pop())}, USE_TZ=True)

import django
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from expirebridge import current_task
from expirebridge.ledger import Ledger, Status
from expirebridge.testing import Clock, run_handler

django.setup()
ledger = Ledger()


class NoSale(Exception):
    pass


def rate(order, fails=False):
    if fails:
        raise RuntimeError("the shop is closed")

def complete(order):
    with transaction.atomic():
        current_task().complete_in("default")
    raise RuntimeError("after its commit")


class Cases:
    source = "default"

    def setUp(self):
        handlers = {"orders.rate": rate, "orders.complete": complete}
        self.clock = self.enterContext(Clock(handlers=handlers))
        self.clock.use_ledger(self.source)

    def status(self, id):
        return ledger.get("default", id).status

    def test_a_row_runs_and_learns_how_it_ended(self):
        with transaction.atomic():
            ledger.make_task(connection, "orders.rate", [17], "24h", id="a")
            ledger.make_task("default", "orders.rate", [18, True], "24h", id="b", retry=[])
        self.clock.assert_made("orders.rate", args=[17], due_in="24h")
        ends = [ran.end for ran in self.clock.travel("24h")]
        assert ends == ["succeeded", "failed"], ends
        assert self.status("a") is Status.SUCCEEDED
        assert self.status("b") is Status.FAILED

    def test_a_block_that_is_rolled_back_makes_nothing(self):
        with transaction.atomic():
            ledger.make_task("default", "orders.rate", [1], "1h", id="kept")
            try:
                with transaction.atomic():
                    ledger.make_task("default", "orders.rate", [2], "1h", id="gone")
                    raise NoSale
            except NoSale:
                pass
        assert [task.id for task in self.clock.made()] == ["kept"]
        assert len(self.clock.travel("1h")) == 1

    def test_a_handler_completes_its_task(self):
        ledger.make_task("default", "orders.complete", [1], "1h", id="a")
        [ran] = self.clock.travel("1d")
        assert ran.end == "succeeded", ran
        assert self.status("a") is Status.SUCCEEDED
        ledger.make_task("default", "orders.complete", [1], "1h", id="b")
        assert run_handler(complete, [1], id="b", raising=False).end == "succeeded"
        assert self.status("b") is Status.SUCCEEDED


class OpenTransaction(Cases, TestCase):
    pass


class ByConnection(Cases, TestCase):
    source = connection


class Committed(Cases, TransactionTestCase):
    pass


class Afterwards(unittest.TestCase):
    def test_nothing_is_left(self):
        with connection.cursor() as cursor:
            for table in ("expirebridge_task", "expirebridge_pass"):
                cursor.execute(f"SELECT count(*) FROM {table}")
                assert cursor.fetchone() == (0,), table


def load_tests(loader, *_):
    return unittest.TestSuite(loader.loadTestsFromTestCase(globals()[name]) for name in chosen)


unittest.main()
"""


@pytest.mark.parametrize(
    ("cases", "count", "horizon"),
    [
        (["OpenTransaction", "Afterwards"], 4, None),
        (["OpenTransaction", "Afterwards"], 4, "10m"),
        pytest.param(
            ["ByConnection", "Afterwards", "Committed", "Afterwards"], 8, None,
            marks=pytest.mark.rest,
        ),
        pytest.param(["Committed", "Afterwards"], 4, "10m", marks=pytest.mark.rest),
    ],
)  # fmt: skip
def test_rows_are_relayed_in_each_kind_of_test(
    engine: Engine, cases: list[str], count: int, horizon: str | None
) -> None:
    """In a process of its own, for Django's settings are those of a process."""
    environment = os.environ | ({} if horizon is None else {"EXPIREBRIDGE_LEDGER_HORIZON": horizon})
    url = engine.url
    if engine.dialect.name not in ENGINES:
        pytest.skip("Django's driver for MySQL, mysqlclient, is not among the tests' own")
    database: dict[str, Any] = {
        "ENGINE": f"django.db.backends.{ENGINES[engine.dialect.name]}", "NAME": url.database,
        "USER": url.username or "", "HOST": url.host or "", "PORT": url.port or "",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(database), json.dumps(cases)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"Ran {count} tests" in done.stderr
