# /// script
# requires-python = ">=3.11"
# dependencies = ["procrastinate==3.10.0", "psycopg[binary]==3.3.9"]
#
# [tool.lab]
# title = "procrastinate"
# kind = "peer"
# databases = ["postgresql"]
# prepare = ["procrastinate --app {module}.app schema --apply"]
# worker = ["procrastinate --app {module}.app worker --concurrency {concurrency}"]
# driver = "python -m benchmarks.kit.ordering {module}"
# handlers = ["async"]
# concurrency = "--concurrency 100: coroutines"
# settings = "defaults; the producer defers in its own transaction, on a connection of psycopg"
# only = ["inserts", "commit_lag", "commit_crash", "ledger_idle"]
# because = "its tasks are rows in PostgreSQL, not in Redis"
# documentation = [
#   "https://procrastinate.readthedocs.io/en/stable/howto/production/external_connection.html",
#   "https://procrastinate.readthedocs.io/en/stable/howto/basics/worker.html",
# ]
# ///
"""procrastinate: tasks are rows of PostgreSQL, and its workers take them from there."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector

from benchmarks.kit import journal
from benchmarks.kit.orders import CONNINFO, INSERT_PSYCOPG, Tasks, committed, order
from benchmarks.kit.server import USER

app = App(connector=PsycopgConnector(conninfo=CONNINFO))


@app.task(name="send")
async def send(number: int, user: str) -> None:
    await journal.handle(number)


@cache
def connection() -> psycopg.Connection[Any]:
    """The application's own."""
    return psycopg.connect(CONNINFO)


def open() -> None:
    app.open()


def transact(number: int, tasks: Tasks, rows: int) -> None:
    for _ in range(rows):
        connection().execute(INSERT_PSYCOPG, order(number))
    if tasks:
        due = tasks[0][1]
        later = {} if due is None else {"schedule_at": datetime.fromtimestamp(due, UTC)}
        deferred = send.configure(connection=connection(), **later)
        given = [{"number": task, "user": USER} for task, _ in tasks]
        if len(given) == 1:
            deferred.defer(**given[0])
        else:
            deferred.batch_defer(*given)
    connection().commit()
    committed(number)
