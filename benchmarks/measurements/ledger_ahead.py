"""Ours: 1,000,000 rows that are due in a year, and 100 tasks a second beside them.

The rows are inserted by one statement, and a listener is started that relays what is due within a
day. Then 100 transactions a second make a task each that is due at once, for a minute:
`server_mb` is the most memory that Redis has used, `begin_ms` from the end of a commit to the
handler's first statement. 1,000 tasks that are due in an hour follow, and Redis is emptied:
`noticed` seconds later the listener has marked what was lost, and `back` seconds after FLUSHALL
each of these tasks and each finished one is there again. Last, `bound` seconds after `ledger
rebuild` has begun, it is so once more.

The same without the rows tells what they cost. The handler does nothing.
"""

import threading
import time
from typing import Any

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Orders, Stage, StageError
from benchmarks.lab.verdict import Runs, percentile

NUMBERS = {
    "postgresql": "generate_series(1, {rows}) AS numbers (n)",
    "mariadb": "(SELECT seq AS n FROM seq_1_to_{rows}) AS numbers",
    "sqlite": "(WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
    "WHERE n < {rows}) SELECT n FROM numbers)",
}
JOINED = {"mariadb": "concat('far-', n)"}
LOST = "SELECT count(*) FROM expirebridge_task WHERE ledger = 'default' AND todo = 2"
RELAYED = "SELECT count(*) FROM expirebridge_task WHERE ledger = 'default' AND stamp > 0"
HOUR, YEAR_MS = 3600.0, 31_536_000_000
PATIENCE = 120.0
PERCENTS = (50, 99, 100)


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours" or not contender.databases:
        return []
    base = {"seconds": scale.seconds(60), "later": scale(1000)}
    return [
        base | {"database": database, "rows": rows}
        for database in contender.databases
        for rows in (scale(1_000_000), 0)
    ]


def measure(case: Case) -> Figures:
    variant = case.variant
    with Stage(
        case.contender, case.binary, database=variant["database"],
        variables={"EXPIREBRIDGE_LEDGER_HORIZON": "1d"},
    ) as stage:  # fmt: skip
        began = time.monotonic()
        if variant["rows"]:
            stage.database.execute(_fill(variant))
        figures: Figures = {"filled": time.monotonic() - began}
        stage.start()
        stage.rest()
        with Memory(stage) as memory:
            figures |= _run(stage, variant)
            _make_later(stage, variant)
        figures["server_mb"] = memory.most / 1e6
        figures |= _lose(stage, variant)
        figures["bound"] = _bind(stage, variant)
        figures["lost"] = variant["later"] - _later(stage)
        return figures


def _fill(variant: Variant) -> str:
    rows, database = variant["rows"], variant["database"]
    id = JOINED.get(database, "'far-' || n")
    return (
        "INSERT INTO expirebridge_task (id, func, params, delay_ms) "  # noqa: S608
        f"SELECT {id}, 'mail.send', '[1]', {YEAR_MS} + n FROM {NUMBERS[database].format(rows=rows)}"
    )


def _run(stage: Stage, variant: Variant) -> Figures:
    count = round(variant["seconds"] * 100)
    orders = Orders(first=0, count=count, tasks=1, seconds=variant["seconds"])
    answer = stage.producer.transact(orders)
    commits = {int(number): float(at) for number, at in answer["commits"]}
    if not stage.wait_until(lambda: commits.keys() <= stage.ended(), limit=PATIENCE, every=0.1):
        raise StageError(f"{len(commits.keys() - stage.ended())} tasks have not run")
    runs = Runs.read(stage.journal)
    late = sorted((min(runs.began[n]) - at) * 1000 for n, at in commits.items())
    return {
        "asked": len(commits),
        "begin_ms": {f"{p}": percentile(late, p) for p in PERCENTS},
    }


def _make_later(stage: Stage, variant: Variant) -> None:
    orders = Orders(first=10_000_000, count=variant["later"], tasks=1, delay=HOUR)
    stage.producer.transact(orders)
    if not stage.wait_until(lambda: _later(stage) >= variant["later"], limit=PATIENCE, every=0.1):
        raise StageError("not every task came to Redis")


def _later(stage: Stage) -> int:
    """The tasks that are due in an hour, as Redis knows them."""
    return int(stage.client.zcard("expirebridge:pending"))


def _lose(stage: Stage, variant: Variant) -> Figures:
    relayed = stage.database.scalar(RELAYED)
    stage.client.flushall()
    began = time.monotonic()
    if not stage.wait_until(lambda: stage.database.scalar(LOST) > 0, limit=PATIENCE, every=0.05):
        raise StageError("the listener does not notice that Redis was emptied")
    noticed = time.monotonic() - began
    _until_back(stage, variant)
    return {"relayed": relayed, "noticed": noticed, "back": time.monotonic() - began}


def _until_back(stage: Stage, variant: Variant) -> None:
    """Wait until nothing is lost any more."""

    def is_back() -> bool:
        return _later(stage) >= variant["later"] and not stage.database.scalar(LOST)

    if not stage.wait_until(is_back, limit=PATIENCE, every=0.05):
        raise StageError("what was lost does not come back")


def _bind(stage: Stage, variant: Variant) -> float:
    began = time.monotonic()
    stage.call("python -m expirebridge ledger rebuild --yes --url {url}")
    _until_back(stage, variant)
    return time.monotonic() - began


class Memory(threading.Thread):
    """Notes the most memory that Redis uses while its block runs, in bytes."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._stage = stage
        self._over = threading.Event()

    def __enter__(self) -> "Memory":
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.25):
            self.most = max(self.most, self._stage.info("memory")["used_memory"])


MEASUREMENT = Measurement(
    name="ledger_ahead",
    variants=variants,
    measure=measure,
    limit=600,
    rounds=1,
    seconds=150,
)
