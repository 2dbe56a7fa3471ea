"""Rows whose arguments are sealed."""

from dataclasses import replace
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from expirebridge import Bridge, InvalidTask, handler
from expirebridge.hooks import End
from expirebridge.ledger import Ledger
from expirebridge.ledger.rows import Status
from expirebridge.settings import Settings
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.private_keys import K1
from tests.kit.witness import Witness, listening

SECRET = "secret-name-of-a-customer"


async def send(to: str) -> str:
    return f"sent to {to}"


@handler(retry=[])
async def fail(to: str) -> None:
    raise ValueError(f"no {to}")


def files_of(database: str) -> bytes:
    """The file of an SQLite database, and those beside it, such as its log."""
    path = Path(database)
    return b"".join(one.read_bytes() for one in path.parent.glob(f"{path.name}*"))


async def test_neither_the_database_nor_the_server_sees_them(
    engine: Engine,
    harness: LedgerHarness,
    with_ledger: Settings,
    client: redis.Redis,
) -> None:
    ledger, witness = Ledger(engine, keys=K1), Witness()
    async with listening(replace(with_ledger, keys=K1), witness, send=send, fail=fail):
        with engine.begin() as connection:
            made = ledger.make_task(connection, "test.send", [SECRET], 0, id="a")
            ledger.make_tasks(
                connection, [{"func": "test.fail", "args": [SECRET], "delay": 0, "id": "b"}]
            )
        assert made.args == [SECRET]
        await witness.until_ended(1, End.SUCCEEDED)
        await witness.until_ended(1, End.FAILED)
        await until(lambda: harness.status("a") is Status.SUCCEEDED)
        await until(lambda: harness.status("b") is Status.FAILED)
    with engine.connect() as connection:
        failed = ledger.get(connection, "b")
        assert failed is not None
        assert failed.args == [SECRET]
        assert failed.message is not None
        assert failed.message.endswith(f"ValueError: no {SECRET}")
        hidden = Ledger(engine).get(connection, "b")
        assert hidden is not None
        note = "(sealed with key k1)"
        assert (hidden.args, hidden.message) == ([note], note)
        rows = str(connection.execute(ledger.tables.task.select()).all())
    assert "secret" not in rows
    if engine.url.get_backend_name() == "sqlite":
        assert b"secret" not in files_of(str(engine.url.database))
    records = str([client.hgetall(f"expirebridge:task:{id}") for id in "ab"])
    assert "sealed:k1:" in records
    assert "secret" not in records


async def test_plain_rows_of_others_run_beside_them(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge
) -> None:
    witness = Witness()
    async with listening(replace(with_ledger, keys=K1), witness, send=send):
        harness.insert("a", func="test.send", params='["plain"]')
        await witness.until_ended(1, End.SUCCEEDED)
    read = bridge.get("a")
    assert read is not None
    assert (read.args, read.result) == (["plain"], "(sealed with key k1)")


def test_what_a_ledger_cannot_keep_private_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        with pytest.raises(InvalidTask, match="a ledger does not seal the arguments of series"):
            Ledger(engine, keys=K1).schedule(connection, "s", "test.send", [SECRET], every="1h")
        with pytest.raises(InvalidTask, match="give the ledger keys"):
            Ledger(engine).make_tasks(
                connection, [{"func": "test.send", "args": [SECRET], "delay": 0, "private": True}]
            )
