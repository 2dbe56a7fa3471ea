"""`expirebridge ledger`: tables are created and checked, and a password is never shown."""

import json
import re
from typing import Any

import pytest
import redis
from sqlalchemy import URL, Engine
from typer.testing import CliRunner

from expirebridge.errors import ExpirebridgeError, InvalidSetting, LedgerError, LedgerUnreachable
from expirebridge.ledger import Ledger, LedgerUnsuitable, Tables, ddl
from tests.kit.invoked import app

SECRET = "s3cretpw"


def run(*words: str, url: str | URL, code: int = 0) -> str:
    shown = url.render_as_string(hide_password=False) if isinstance(url, URL) else url
    result = CliRunner().invoke(
        app, ["ledger", *words], env={"EXPIREBRIDGE_LEDGER": shown}, catch_exceptions=False
    )
    assert result.exit_code == code, result.output
    return result.stdout


def test_create_creates_once(database_url: URL) -> None:
    with pytest.raises(LedgerUnsuitable, match="ledger create"):
        run("status", url=database_url)
    assert run("create", url=database_url) == "created: version 1\n"
    assert run("create", url=database_url) == "there already: version 1\n"
    assert json.loads(run("create", "--json", url=database_url)) == {
        "created": False, "version": 1,
    }  # fmt: skip
    assert run("check", url=database_url) == "version 1, 0 rows that cannot be relayed\n"


def test_ddl_prints_what_the_url_names(database_url: URL) -> None:
    dialect = database_url.get_backend_name()
    assert run("ddl", url=database_url) == ddl(dialect)
    assert run("ddl", "--dialect", "mysql", url="") == ddl("mysql")
    with pytest.raises(InvalidSetting, match="one of postgresql"):
        run("ddl", "--dialect", "oracle", url="")


def test_status_counts(engine: Engine, ledger: Ledger, made: Tables) -> None:
    with engine.begin() as connection:
        ledger.make_tasks(connection, [{"func": "a.b", "delay": 5}] * 3)
        for status, todo in ((10, 0), (20, 0), (20, 2), (30, 0)):
            connection.execute(
                made.task.insert().values(
                    func="a.b", params="[]", at_ms=1, status=status, todo=todo
                )
            )
        connection.execute(made.task.insert().values(ledger="other", func="x", params="", at_ms=1))
        connection.execute(made.passes.insert().values(ledger="default", partition=0, nonce="n"))
    found = json.loads(run("status", "--json", url=engine.url))
    assert 0 <= found.pop("oldest") < 100
    assert found == {
        "ledger": "default", "version": 1, "waiting": 3, "succeeded": 1, "failed": 2,
        "cancelled": 1, "to_relay": 3, "to_rebuild": 1, "refused": 0, "horizon": None,
        "kept_back": {"count": 0, "first": None, "last": None},
        "for_ids": {"count": 0, "example": None},
        "passes": [{"partition": 0, "number": 0, "stamp": 0}], "held": [],
    }  # fmt: skip
    lines = run("status", url=engine.url)
    assert "to relay     3, the oldest for" in lines
    assert "partition 0  pass 0, stamp 0" in lines
    assert "waiting     1" in run("status", "--ledger-name", "other", url=engine.url)


def test_status_shows_how_far_rows_are_behind_redis(
    engine: Engine, made: Tables, url: str, client: redis.Redis
) -> None:
    with engine.begin() as connection:
        connection.execute(
            made.task.insert().values(
                func="a.b", params="[", at_ms=1, status=20, todo=0, message="refused: args"
            )
        )
    client.zadd("expirebridge:dirty", {"a": 1})
    found = json.loads(run("status", "--json", "--url", url, url=engine.url))
    assert (found["refused"], found["redis"]["number"], found["redis"]["dirty"]) == (1, 0, 1)
    assert found["redis"]["oldest_dirty"] > 1e9
    lines = run("status", "--url", url, url=engine.url)
    assert re.search(r"^refused +1 of the failed$", lines, re.MULTILINE)
    assert re.search(r"^to write back +1, the first for ", lines, re.MULTILINE)


def test_check_names_rows_that_cannot_be_relayed(
    engine: Engine, made: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expirebridge.ledger.inspection.PAGE_ROWS", 2)
    rows: list[dict[str, Any]] = [
        {"id": "a", "func": "a.b", "params": "[1]"},
        {"id": "b", "func": "nothing", "params": "[]"},
        {"id": "c", "func": "a.b", "params": f'"{SECRET}"'},
        {"id": "d", "func": "a.b", "params": "[]"},
        {"id": "e", "func": "a.b", "params": "[", "todo": 0},
    ]
    with engine.begin() as connection:
        for row in rows:
            connection.execute(made.task.insert().values(at_ms=1, **row))
    said = run("check", url=engine.url, code=5)
    assert "b  func='nothing'" in said
    assert "c  args: " in said
    assert said.endswith("version 1, 2 rows that cannot be relayed\n")
    assert SECRET not in said
    found = json.loads(run("check", "--json", url=engine.url, code=5))
    assert [row["id"] for row in found["unfit"]] == ["b", "c"]


def test_a_password_on_the_command_line_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="put a URL with a password into") as raised:
        run("status", "--ledger", f"postgresql+psycopg://a:{SECRET}@h/d", url="")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("", InvalidSetting, "which database"),
        (f"postgresql+psycopg://a:{SECRET}@127.0.0.1:1/d", LedgerUnreachable, "cannot be reached"),
        (f"mysql+pymysql://a:{SECRET}@127.0.0.1:1/d", LedgerUnreachable, "cannot be reached"),
        (f"postgresql+nothing://a:{SECRET}@h/d", InvalidSetting, "no driver"),
        (f"postgresql+pg8000://a:{SECRET}@h/d", InvalidSetting, "pip install pg8000"),
        (f"oracle://a:{SECRET}@h/d", InvalidSetting, "cannot hold a ledger"),
        (f"a:{SECRET}@h", InvalidSetting, "cannot be read"),
        (f"postgresql://a:{SECRET}@h:port/d", InvalidSetting, "cannot be read"),
        ("sqlite:////nowhere/at/all.db", LedgerError, "unable to open"),
    ],
)
def test_what_cannot_be_used_is_named_without_its_password(
    url: str, kind: type[ExpirebridgeError], said: str
) -> None:
    with pytest.raises(kind, match=said) as raised:
        run("status", url=url)
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None
