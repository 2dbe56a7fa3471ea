"""What a task adds to a transaction of an application, beside the application's own INSERT.

Each transaction inserts a row of the application, and commits: on PostgreSQL, MariaDB and SQLite
with their defaults, so a commit waits for the disk. Beside that it does nothing, inserts a second
such row, makes a task that is due in three days, or makes 100 of them. The four take turns, five
times, after one turn that warms up, and the medians are shown: transactions a second, the time of
one, and the processor time of the producer for it. No worker is up.
"""

from statistics import median
from typing import Any

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Orders, Stage

TURNS = 5
WAYS = {"row": (1, 0), "two_rows": (2, 0), "row_and_task": (1, 1), "row_and_100_tasks": (1, 100)}
"""How many rows of the application, and how many tasks."""
FEWER = 20
"""The transactions with 100 tasks are fewer by that."""
LATER = 3 * 86_400.0


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    return [
        {"database": name, "transactions": scale(400), "turns": min(scale(TURNS) + 1, TURNS)}
        for name in contender.databases
    ]


def measure(case: Case) -> Figures:
    variant = case.variant
    with Stage(case.contender, case.binary, database=variant["database"]) as stage:
        turns: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        first = 0
        for turn in range(variant["turns"] + 1):
            for way, (rows, tasks) in WAYS.items():
                count = max(variant["transactions"] // (FEWER if tasks > 1 else 1), 2)
                orders = Orders(first=first, count=count, delay=LATER, rows=rows, tasks=tasks)
                first += count
                answer = stage.producer.transact(orders)
                if turn > 0:
                    turns[way].append(_of_one(answer, count))
        return {way: _medians(each) for way, each in turns.items()}


def _of_one(answer: dict[str, Any], count: int) -> dict[str, float]:
    return {
        "per_second": count / answer["seconds"],
        "ms": answer["seconds"] * 1000 / count,
        "cpu_ms": answer["cpu"] * 1000 / count,
    }


def _medians(turns: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(turn[name] for turn in turns) for name in turns[0]}


MEASUREMENT = Measurement(
    name="inserts",
    variants=variants,
    measure=measure,
    limit=300,
    rounds=1,
    seconds=15,
    quick=Quick(part=0.3, seconds=8),
)
