"""What a task of the ledger adds to a transaction, beside the application's own INSERT.

    python -m benchmarks.ledger_inserts [--transactions 500] [--databases postgresql sqlite]

Each transaction inserts a row of the application with SQLAlchemy Core, and commits. Beside that it
does nothing, inserts a second such row, makes a task, or makes 100 at once. The ways take turns;
the medians of their turns are printed. With `--durable`, each commit waits for the disk.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    insert,
)

from expirebridge.ledger import Ledger
from expirebridge.ledger.schema import create
from tests.kit.databases import NAMES, SQLITE, database_of

TURNS = 5
METADATA = MetaData()
ORDERS = Table(
    "orders",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("customer", String(100), nullable=False),
    Column("note", String(200), nullable=False),
)
Way = Callable[[Connection], None]


def order(connection: Connection) -> None:
    connection.execute(insert(ORDERS).values(customer="ann", note="by the garden gate"))


def ways(ledger: Ledger) -> dict[str, Way]:
    """What is done in each transaction."""
    many = [{"func": "orders.rate", "args": [17], "delay": "72h", "ext": "order-17"}] * 100

    def two_rows(connection: Connection) -> None:
        order(connection)
        order(connection)

    def with_task(connection: Connection) -> None:
        order(connection)
        ledger.make_task(connection, "orders.rate", [17], "72h", ext="order-17")

    def with_named_task(connection: Connection) -> None:
        order(connection)
        number = time.perf_counter_ns()
        ledger.make_task(connection, "orders.rate", [17], "72h", id=f"rate-{number}")

    def with_many(connection: Connection) -> None:
        order(connection)
        ledger.make_tasks(connection, many)

    return {
        "one row": order,
        "two rows": two_rows,
        "row and task": with_task,
        "row and task with id": with_named_task,
        "row and 100 tasks": with_many,
    }


def cost_of(engine: Engine, way: Way, transactions: int) -> tuple[float, float]:
    """How long a transaction takes, and how much of a core it takes of this process, in ms."""
    started, worked = time.perf_counter(), time.process_time()
    with engine.connect() as connection:
        for _ in range(transactions):
            way(connection)
            connection.commit()
    elapsed = time.perf_counter() - started, time.process_time() - worked
    return elapsed[0] * 1000 / transactions, elapsed[1] * 1000 / transactions


def measure(name: str, transactions: int, *, durable: bool) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        database_of(name, Path(folder), durable=durable) as database,
    ):
        engine = create_engine(database.new_database())
        ledger = Ledger()
        METADATA.create_all(engine)
        with engine.begin() as connection:
            if name == SQLITE and not durable:
                connection.exec_driver_sql("PRAGMA synchronous = OFF")
            create(connection, ledger.tables)
        todo = ways(ledger)
        turns: dict[str, list[tuple[float, float]]] = {way: [] for way in todo}
        for turn in range(TURNS + 1):
            for way, run in todo.items():
                cost = cost_of(engine, run, max(transactions // (20 if "100" in way else 1), 5))
                if turn > 0:  # the first turn warms up
                    turns[way].append(cost)
        engine.dispose()
    show(name, turns)


def show(name: str, turns: dict[str, list[tuple[float, float]]]) -> None:
    """Print the medians, and what each way adds to that of one row."""
    medians = {
        way: (median(ms for ms, _ in costs), median(ms for _, ms in costs))
        for way, costs in turns.items()
    }
    base = medians["one row"]
    for way, (elapsed, worked) in medians.items():
        print(
            f"{name:<11} {way:<21} {1000 / elapsed:7.0f}/s {elapsed:8.3f} ms "
            f"{elapsed - base[0]:+8.3f}   client's CPU {worked:7.3f} ms {worked - base[1]:+7.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transactions", type=int, default=500)
    parser.add_argument("--databases", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--durable", action="store_true")
    given = parser.parse_args()
    for name in given.databases:
        measure(name, given.transactions, durable=given.durable)


if __name__ == "__main__":
    main()
