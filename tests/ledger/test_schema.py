"""The tables are created once, and what is there already is named."""

from sqlalchemy import Engine, inspect, text

from expirebridge.ledger.schema import create, find
from expirebridge.ledger.tables import VERSION, Tables


def test_the_tables_are_created_once(engine: Engine, made: Tables) -> None:
    with engine.begin() as connection:
        first = find(connection, made)
        assert first.version == VERSION
        assert len(first.identity) == 32
        assert not create(connection, made)
        assert find(connection, made) == first
        assert inspect(connection).get_view_names() == ["delay_queue"]


def test_a_plain_insert_gives_three_columns(engine: Engine, made: Tables) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO expirebridge_task (func, params, delay_ms) VALUES ('a.b', '[]', 5)")
        )
        [row] = connection.execute(made.task.select())
        assert len(row.id) == 32
        assert (row.ledger, row.generation, row.revision, row.wanted) == ("default", 1, 1, "none")
        assert (row.status, row.todo, row.stamp, row.slot, row.due) == (1, 1, 0, None, None)
        assert 0 <= row.created - row.written < 1000
