"""What a producer that is killed leaves behind: orders without a task, and tasks without an order.

The producer makes transactions as fast as it can, each with an order of its own and a task that is
due at once, and is killed with SIGKILL: after between 0.2 and 0.5 s, wherever it is then; or, in a
second variant, right after a commit, before it does anything else. It is started again each time.
When all is quiet, each order in PostgreSQL is held against the journal: `lost` orders never had
their task run, `unasked` tasks ran without an order, `twice` began more than once.
"""

import random
import time

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Orders, Stage
from benchmarks.lab.verdict import Runs

A_LIFE = 1_000_000
"""Numbers that each life of the producer may use."""
LEAST, MOST = 0.2, 0.5
FEW = 5
"""Transactions of a life that ends after a commit."""
PATIENCE = 30.0
QUIET = 5.0
"""Seconds without a new run after which the others count as lost."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.databases:
        return []
    return [{"killed": killed, "kills": scale(30)} for killed in ("anywhere", "after a commit")]


def measure(case: Case) -> Figures:
    variant = case.variant
    with Stage(
        case.contender, case.binary, handler=case.contender.handlers[0],
        database=variant.get("database"),
    ) as stage:  # fmt: skip
        stage.start()
        chance = random.Random(17)  # noqa: S311 - the same moments for each contender
        for life in range(1, variant["kills"] + 1):
            _live(stage, life, variant["killed"], chance.uniform(LEAST, MOST))
        return _judge(stage) | {"kills": variant["kills"]}


def _live(stage: Stage, life: int, killed: str, seconds: float) -> None:
    """Let a producer make transactions, and die."""
    dies = killed == "after a commit"
    first = life * A_LIFE
    stage.producer.begin(Orders(first=first, count=FEW if dies else A_LIFE, tasks=1, dies=dies))
    if dies:
        stage.producer.process.wait(PATIENCE)
    else:
        committed = "SELECT count(*) FROM orders WHERE number >= :first"
        stage.wait_until(
            lambda: stage.database.scalar(committed, first=first) > 0, limit=PATIENCE, every=0.01
        )
        time.sleep(seconds)
    stage.kill_producer()


def _judge(stage: Stage) -> Figures:
    orders = {
        number for (number,) in stage.database.rows("SELECT number FROM orders WHERE number >= 0")
    }
    seen, since = -1, time.monotonic()
    while not orders <= stage.ended() and time.monotonic() < since + QUIET:
        if len(stage.ended()) != seen:
            seen, since = len(stage.ended()), time.monotonic()
        time.sleep(0.1)
    runs = Runs.read(stage.journal)
    return {
        "orders": len(orders),
        "lost": len(orders - runs.ended.keys()),
        "unasked": len(runs.began.keys() - orders),
        "twice": sum(1 for times in runs.began.values() if len(times) > 1),
    }


MEASUREMENT = Measurement(
    name="commit_crash",
    variants=variants,
    measure=measure,
    limit=300,
    rounds=1,
    seconds=30,
    quick=Quick(part=0.3, seconds=15),
)
