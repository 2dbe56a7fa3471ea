"""PgBouncer in transaction mode: each transaction may have another connection of the server."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from expirebridge.ledger import Ledger, Tables
from expirebridge.ledger.engine import engine_of
from tests.kit import pgbouncer


def test_the_ledgers_connections_do_not_mind(engine: Engine, made: Tables, tmp_path: Path) -> None:
    """What a driver prepared on one connection of the server is not there on another."""
    if engine.dialect.name != "postgresql":
        pytest.skip("PgBouncer is PostgreSQL's")
    if pgbouncer.BINARY is None:
        pytest.skip("needs pgbouncer")
    with pgbouncer.pooled(engine.url, tmp_path) as url:
        pooled = engine_of(url)
        ledger = Ledger(url)
        with pooled.connect() as one, pooled.connect() as other:
            for number in range(12):  # psycopg prepares what it sent five times
                # They take turns in who begins, so each has the other's connection now and then.
                for connection in (one, other) if number % 2 else (other, one):
                    id = f"{number}-{connection is one}"
                    if connection is one:  # equal names would stand for equal text otherwise
                        ledger.get(connection, id)
                    ledger.make_task(connection, "a.b", [], 5, id=id)
                    ledger.cancel(connection, id)
                one.commit()
                other.commit()
        pooled.dispose()
    with engine.connect() as connection:
        assert len(connection.execute(made.task.select()).all()) == 24
