"""Django: in `transaction.atomic()`, by its connection or by an alias."""

import json
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import Engine

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mariadb": "mysql", "mysql": "mysql"}

PROGRAM = """
import json, sys
from django.conf import settings

database, url = json.loads(sys.argv[1])
settings.configure(DATABASES={"default": database}, USE_TZ=True)

import django
from django.db import connection, transaction
from expirebridge.ledger import Ledger

django.setup()
ledger = Ledger(url)
with transaction.atomic():
    ledger.make_task(connection, "a.b", ["50%"], 5, id="kept", ext="100%")
    try:
        with transaction.atomic():
            ledger.make_task("default", "a.b", [], 5, id="gone")
            raise ValueError
    except ValueError:
        pass
    ledger.make_tasks("default", [{"func": "a.b", "delay": 5, "ext": "many"}] * 3)
try:
    with transaction.atomic():
        ledger.cancel("default", "kept")
        raise ValueError
except ValueError:
    pass
with transaction.atomic():
    ledger.make_task("default", "a.b", [], 5, id="waits", on_signal="a.c")
    answers = [ledger.signal("default", "waits", said) for said in ("50%", "50%", "%s")]
found = ledger.get("default", "kept")
counts = [len(ledger.find("default", ext=ext)) for ext in ("many", "100%")]
there = ledger.get("default", "gone")
print(json.dumps([found.args, found.wanted, there is None, *counts, *answers]))
"""


def test_it_is_part_of_an_atomic_block(engine: Engine) -> None:
    """In a process of its own, for Django's settings are those of a process."""
    url = engine.url
    if engine.dialect.name == "mariadb":
        pytest.skip("Django's driver for MySQL, mysqlclient, is not among the tests' own")
    database: dict[str, Any] = {
        "ENGINE": f"django.db.backends.{ENGINES[engine.dialect.name]}", "NAME": url.database,
        "USER": url.username or "", "HOST": url.host or "", "PORT": url.port or "",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([database, url.render_as_string()])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        ["50%"], "none", True, 3, 1, "signalled", "signalled", "signalled before"
    ]  # fmt: skip


@pytest.mark.rest
def test_without_tables_the_error_is_the_same() -> None:
    program = PROGRAM.replace("with transaction.atomic():\n    ledger", "if True:\n    ledger", 1)
    given = [{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, None]
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(given)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "LedgerUnsuitable: there is no table expirebridge_schema" in done.stderr
