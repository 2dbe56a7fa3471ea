"""How much a database reads for a query."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, event, insert, text

Query = tuple[str, Any]


@contextmanager
def filled(engine: Engine, task: Table, rows: list[dict[str, Any]], **more: Any) -> Iterator[None]:
    """While the block runs, the table has these rows, and the database knows how many.

    `more` are values of all of them.
    """
    with engine.begin() as connection:
        connection.execute(insert(task).values(ledger="default", **more), rows)
    if engine.dialect.name != "sqlite":
        # What other tests left in the indices would be read, too.
        verb = "VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE TABLE"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"{verb} {task.name}"))
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(task.delete())


@contextmanager
def noted(engine: Engine, *verbs: str) -> Iterator[list[Query]]:
    """The queries of the table of tasks that are made meanwhile; or its statements of these verbs.

    One that is executed for many rows is left out: each of them is named by its key.
    """
    queries: list[Query] = []
    wanted = verbs or ("SELECT",)

    def note(
        _connection: Connection, _cursor: object, statement: str, parameters: Any,
        _context: object, is_many: bool,
    ) -> None:  # fmt: skip
        if is_many:
            return
        if statement.startswith(wanted) and "expirebridge_task" in statement:
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
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters
            ).scalar_one()
            plans = json.loads(explained) if isinstance(explained, str) else explained
            return sum(max(_rows_of(plan["Plan"]), _blocks_of(plan["Plan"])) for plan in plans)
        case "sqlite":
            return _steps_of(connection, query) // 100  # a row has 20 columns and more
        case _:
            before = _handler_reads(connection)
            _execute(connection, query)
            return _handler_reads(connection) - before


def _execute(connection: Connection, query: Query) -> None:
    result = connection.exec_driver_sql(*query)
    if result.returns_rows:
        result.all()


def _rows_of(plan: Any) -> int:
    own = 0
    if plan.get("Relation Name") == "expirebridge_task":
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own) + sum(map(_rows_of, plan.get("Plans", [])))


def _blocks_of(plan: Any) -> int:
    """What is read of an index and fits its condition in part only is not counted as rows."""
    return int(plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0))


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
        _execute(connection, query)
    finally:
        raw.set_progress_handler(None, 0)
    return steps


def _handler_reads(connection: Connection) -> int:
    # Beside what is read, what an index has been asked about, and did not fit.
    asked = "'^Handler_(read|icp_attempts)'"
    names = text(f"SHOW SESSION STATUS WHERE Variable_name REGEXP {asked}")
    return sum(int(value) for _, value in connection.execute(names))
