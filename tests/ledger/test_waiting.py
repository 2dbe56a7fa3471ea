"""What a pass costs the database does not grow with the rows that wait."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, text

from expirebridge.ledger import Tables
from expirebridge.ledger.passbook import Passbook
from expirebridge.ledger.relay import finish
from expirebridge.ledger.tables import Todo
from expirebridge.slots import Layout
from expirebridge.store.store import Store
from tests.kit.ledgers import Books

pytestmark = pytest.mark.timeout(120)

WAITING = 10_000
LAYOUT = Layout("expirebridge", 4)
Query = tuple[str, Any]


@pytest.fixture(params=[Todo.RELAY, Todo.REBUILD])
def full(engine: Engine, made: Tables, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine whose table has many rows that wait, and as many that do not."""
    slots = range(LAYOUT.count) if request.param is Todo.REBUILD else [None]
    rows = [
        {"id": f"t{n}", "func": "mail.send", "params": "[1]", "delay_ms": 3_600_000,
         "todo": request.param if n % 2 else Todo.NOTHING, "slot": slots[n // 2 % len(slots)]}
        for n in range(2 * WAITING)
    ]  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(made.task).values(ledger="default"), rows)
        if engine.dialect.name != "sqlite":
            verb = "ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE TABLE"
            connection.execute(text(f"{verb} expirebridge_task"))
    yield engine
    with engine.begin() as connection:
        connection.execute(made.task.delete())


@contextmanager
def noted(engine: Engine) -> Iterator[list[Query]]:
    """The queries of the table of tasks that are made meanwhile."""
    queries: list[Query] = []

    def note(
        _connection: Connection, _cursor: object, statement: str, parameters: Any, *_rest: object
    ) -> None:
        if statement.startswith("SELECT") and "expirebridge_task" in statement:
            queries.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield queries
    finally:
        event.remove(engine, "before_cursor_execute", note)


def rows_read(connection: Connection, query: Query) -> int:
    """How many rows or entries of an index the database looks at for a query, or a bit more."""
    match connection.dialect.name:
        case "postgresql":
            statement, parameters = query
            explained = connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
            ).scalar_one()
            plans = json.loads(explained) if isinstance(explained, str) else explained
            return sum(_rows_of(plan["Plan"]) for plan in plans)
        case "sqlite":
            return _steps_of(connection, query) // 100  # a row has 20 columns and more
        case _:
            before = _handler_reads(connection)
            connection.exec_driver_sql(*query).all()
            return _handler_reads(connection) - before


def _rows_of(plan: Any) -> int:
    own = 0
    if plan.get("Relation Name") == "expirebridge_task":
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own) + sum(map(_rows_of, plan.get("Plans", [])))


def _steps_of(connection: Connection, query: Query) -> int:
    """The steps of SQLite's virtual machine."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 100
        return 0

    raw: Any = connection.connection.driver_connection
    raw.set_progress_handler(count, 100)
    try:
        connection.exec_driver_sql(*query).all()
    finally:
        raw.set_progress_handler(None, 0)
    return steps


def _handler_reads(connection: Connection) -> int:
    found = connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'")).all()
    return sum(int(value) for _, value in found)


def test_a_pass_reads_no_more_rows_than_it_carries(
    full: Engine, made: Tables, store: Store
) -> None:
    books = Books(full, made, store)
    first = finish(books.relay().carry())  # before it, nothing is known of passes
    with noted(full) as queries:
        assert finish(books.relay().carry()) == first == 100
    assert len(queries) >= 2
    with full.connect() as connection:
        read = {query[0]: rows_read(connection, query) for query in queries}
    assert max(read.values()) < 1000, read


def test_a_look_at_all_partitions_reads_few_rows(full: Engine, made: Tables) -> None:
    books = [
        Passbook(full, made, name="default", layout=LAYOUT, partition=number)
        for number in range(LAYOUT.count)
    ]
    for each in books:
        each.begin("nonce")
    with noted(full) as queries:
        found = books[0].read_all()
        books[1].sort(100)
        books[1].page()
    assert len(found) == LAYOUT.count
    assert any(each.waiting or each.unsorted for each in found.values())
    assert len(queries) == 3
    with full.connect() as connection:
        read = {query[0]: rows_read(connection, query) for query in queries}
    assert max(read.values()) < 1000, read
