"""An application's own side of a transaction: its table, and the moment of each commit.

Contenders that make tasks in transactions have `transact(number, tasks, rows)`: one transaction
that inserts `rows` of the application, and makes each of `tasks`, (number, due), where a due of
None is at once. It calls `committed(number)` when the commit is done, before anything else.
"""

import os
import signal
import time

DATABASE = os.environ.get("LAB_DATABASE", "")
"""The URL of the database, as SQLAlchemy has it."""
CONNINFO = DATABASE.replace("+psycopg", "")
"""The same as psycopg has it."""
INSERT = "INSERT INTO orders (number, customer, note) VALUES (:number, :customer, :note)"
INSERT_PSYCOPG = (
    "INSERT INTO orders (number, customer, note) VALUES (%(number)s, %(customer)s, %(note)s)"
)

Tasks = list[tuple[int, float | None]]
commits: list[tuple[int, float]] = []
"""The number of each transaction, and when it was committed."""
_last: list[int] = []


def order(number: int) -> dict[str, int | str]:
    """The values of a row."""
    return {"number": number, "customer": "ann", "note": "by the garden gate"}


def committed(number: int) -> None:
    """Note the moment; or end this process here, as a power cut would."""
    if number in _last:
        os.kill(os.getpid(), signal.SIGKILL)
    commits.append((number, time.time()))


def die_after(number: int) -> None:
    """Let the process be killed when this transaction is committed."""
    _last.append(number)
