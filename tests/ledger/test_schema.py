"""The tables are created once, and what is there already is named."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError

from expirebridge.checks.finding import Level
from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger import Ledger, Tables, ddl, extras, tables
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.schema import DIALECTS, create, find
from expirebridge.ledger.sql_tables import VERSION
from expirebridge.ledger.table_checks import check_ledger
from expirebridge.settings import Settings


@pytest.fixture
def empty(database_url: URL) -> Iterator[Engine]:
    """The engine of an application in whose database nothing is."""
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


def run(engine: Engine, statement: str, **values: object) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def test_the_tables_are_created_once(empty: Engine, made: Tables) -> None:
    with empty.begin() as connection:
        assert create(connection, made)
        first = find(connection, made)
        assert first.version == VERSION
        assert len(first.identity) == 32
        assert not create(connection, made)
        assert find(connection, made) == first
        assert inspect(connection).get_view_names() == ["delay_queue"]


def test_an_interrupted_create_is_completed(empty: Engine, made: Tables) -> None:
    with empty.begin() as connection:
        made.task.create(connection)
        connection.execute(text("DROP VIEW delay_queue"))
    with empty.begin() as connection:
        assert create(connection, made)
        assert find(connection, made).version == VERSION
        assert inspect(connection).get_view_names() == ["delay_queue"]
    run(empty, "DELETE FROM expirebridge_schema")
    with empty.connect() as connection, pytest.raises(LedgerUnsuitable, match="is empty"):
        find(connection, made)
    with empty.begin() as connection:
        assert create(connection, made)
        assert not create(connection, made)


def test_without_tables_the_remedy_is_named(empty: Engine, made: Tables) -> None:
    with empty.connect() as connection, pytest.raises(LedgerUnsuitable, match="ledger create"):
        find(connection, made)
    with empty.connect() as connection, pytest.raises(LedgerUnsuitable, match="ledger create"):
        Ledger().make_task(connection, "a.b", [], 5)


@pytest.mark.parametrize(
    ("version", "words"), [(VERSION + 1, "upgrade expirebridge"), (0, "needs 1")]
)
def test_other_versions_are_refused(version: int, words: str, empty: Engine, made: Tables) -> None:
    with empty.begin() as connection:
        create(connection, made)
    run(empty, "UPDATE expirebridge_schema SET version = :version", version=version)
    with empty.connect() as connection:
        for refused in (find, create):
            with pytest.raises(LedgerUnsuitable, match=words):
                refused(connection, made)
        with pytest.raises(LedgerUnsuitable, match=words):
            Ledger().make_task(connection, "a.b", [], 5)


def test_a_table_of_somebody_else_is_left_alone(empty: Engine, made: Tables) -> None:
    run(empty, "CREATE TABLE expirebridge_task (id INTEGER)")
    with empty.begin() as connection, pytest.raises(LedgerUnsuitable, match="it lacks at_ms"):
        create(connection, made)
    assert inspect(empty).get_table_names() == ["expirebridge_task"]


def test_tables_that_lack_a_column_are_named(empty: Engine, made: Tables) -> None:
    """As those are that code from before the first release has made."""
    with empty.begin() as connection:
        create(connection, made)
        if connection.dialect.name == "sqlite":
            connection.execute(text("DROP INDEX expirebridge_task_todo"))
        connection.execute(text("ALTER TABLE expirebridge_task DROP COLUMN planned"))
    shown = empty.url.render_as_string(hide_password=False)
    settings = Settings(ledger=shown)
    with empty.begin() as connection, pytest.raises(LedgerUnsuitable, match="it lacks planned"):
        create(connection, made)
    with pytest.raises(LedgerUnsuitable, match=r"planned.*Drop the ledger's tables"):
        LedgerInspector(settings).figures({})
    [found] = check_ledger(settings, dict)
    assert found.level is Level.ERROR
    assert "Drop the ledger's tables" in found.message


def test_a_session_of_another_database_is_refused(
    engine: Engine, empty: Engine, made: Tables
) -> None:
    with empty.begin() as connection:
        create(connection, made)
    ledger = Ledger(engine.url)
    for _ in range(2):
        with (
            empty.begin() as connection,
            pytest.raises(LedgerUnsuitable, match="another database than the ledger's"),
        ):
            ledger.make_task(connection, "a.b", [], 5)
    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [], 5)
    with empty.begin() as connection:
        Ledger().make_task(connection, "a.b", [], 5)  # it names no database


def test_the_tables_can_be_those_of_the_application(empty: Engine) -> None:
    metadata = MetaData()
    Table("orders", metadata, Column("id", Integer, primary_key=True))
    made = tables(metadata)
    assert tables(metadata) == made
    metadata.create_all(empty)
    assert {"orders", "expirebridge_task"} <= set(inspect(empty).get_table_names())
    ledger = Ledger(empty.url, tables=made)
    with empty.begin() as connection:
        assert not create(connection, made)
        ledger.make_task(connection, "a.b", [], 5, id="x")
        assert ledger.get(connection, "x") is not None
    metadata.drop_all(empty)
    assert inspect(empty).get_table_names() == []
    assert inspect(empty).get_view_names() == []


def test_a_tool_that_compares_tables_adds_the_rest(empty: Engine) -> None:
    """As a migration of Alembic does: each table by itself, then what is no table."""
    made = tables(MetaData())
    plain = MetaData()
    for table in made.all():
        table.to_metadata(plain)
    plain.create_all(empty)
    with empty.begin() as connection:
        for statement in extras(made):
            connection.execute(statement)
        assert find(connection, made).version == VERSION


def test_the_printed_statements_create_the_same(empty: Engine, made: Tables) -> None:
    script = ddl(empty.dialect.name)
    assert f"version {VERSION}" in script
    assert script == ddl(empty.dialect.name)
    with empty.begin() as connection:
        for statement in script.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
        assert not create(connection, made)
    assert_same_columns(empty, made)


def assert_same_columns(engine: Engine, made: Tables) -> None:
    found = {column["name"]: column for column in inspect(engine).get_columns(made.task.name)}
    assert list(found) == [column.name for column in made.task.columns]
    for column in made.task.columns:
        assert found[column.name]["nullable"] == column.nullable, column.name
    assert isinstance(found["generation"]["type"], BigInteger)
    indices = {index["name"] for index in inspect(engine).get_indexes(made.task.name)}
    assert indices == {f"expirebridge_task_{name}" for name in ("todo", "stamp", "ext", "ended")}


def test_only_these_databases_hold_a_ledger() -> None:
    assert DIALECTS == ("postgresql", "sqlite", "mysql", "mariadb")
    with pytest.raises(LedgerUnsuitable, match="one of postgresql, sqlite"):
        ddl("oracle")


def test_a_plain_insert_gives_three_columns(engine: Engine, made: Tables) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO expirebridge_task (func, params, delay_ms) VALUES ('a.b', '[]', 5)")
        )
        [row] = connection.execute(made.task.select())
        assert len(row.id) == 32
        assert (row.ledger, row.revision, row.wanted) == ("default", 1, "none")
        assert 0 <= row.created - row.generation < 1000
        assert (row.status, row.todo, row.stamp, row.slot, row.due) == (1, 1, 0, None, None)
        assert 0 <= row.created - row.written < 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay_ms": 5},
        {"at_ms": None},
        {"func": None},
        {"params": None},
        {"status": 2},
        {"wanted": "nothing"},
        {"todo": 4},
    ],
    ids=str,
)
def test_a_row_that_cannot_be_is_refused_by_the_database(
    wrong: dict[str, Any], engine: Engine, made: Tables
) -> None:
    values = {"id": "x", "func": "a.b", "params": "[]", "at_ms": 5, **wrong}
    with engine.connect() as connection, pytest.raises(DBAPIError):
        connection.execute(made.task.insert().values(values))


def test_the_view_shows_times(engine: Engine, made: Tables) -> None:
    with engine.begin() as connection:
        connection.execute(
            made.task.insert().values(
                id="x", func="a.b", params="[1]", at_ms=5, created=1_700_000_000_123,
                modified=1_700_000_001_000, ext_string="e", message="m", retry_times=2, status=20,
            )
        )  # fmt: skip
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET TIME ZONE 'UTC'"))
        [row] = connection.execute(text("SELECT * FROM delay_queue")).mappings()
    assert list(row) == [
        "id", "params", "message", "ext_string", "retry_times", "status", "created", "modified",
    ]  # fmt: skip
    assert list(row.values())[:6] == ["x", "[1]", "m", "e", 2, 20]
    assert str(row["created"]).startswith("2023-11-14 22:13:20.123")
    assert str(row["modified"]).startswith("2023-11-14 22:13:21")
