"""Signals at the moment of the deadline: of each row exactly one function runs."""

import asyncio
import logging
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from expirebridge import Change, current_task
from expirebridge.ledger import Ledger
from expirebridge.ledger.rows import Status
from expirebridge.settings import Settings
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.witness import Witness, listening

logger = logging.getLogger(__name__)

ROWS, SIGNALLERS = 400, 8
APART = 0.01
"""Seconds between two deadlines."""
AROUND = 0.005
"""How many seconds before or after the deadline a signal comes, at most."""


class Shop:
    """Signals rows, each at its own moment; some think again, and roll back."""

    def __init__(self, engine: Engine, ledger: Ledger, seed: int) -> None:
        self._engine, self._ledger = engine, ledger
        self._drawn, self._lock = random.Random(seed), threading.Lock()  # noqa: S311 - a test
        self.answers: dict[str, list[Change]] = defaultdict(list)
        """What was answered and committed."""

    def signal(self, id: str, deadline: float, by: str) -> None:
        with self._lock:
            moment = deadline + self._drawn.uniform(-AROUND, AROUND)
            thinks_again = self._drawn.random() < 0.1
        time.sleep(max(moment - time.time(), 0))
        with self._engine.connect() as session:
            try:
                answer = self._ledger.signal(session, id, id, by=by)
                if thinks_again:
                    session.rollback()
                    return
                session.commit()
            except OperationalError:
                return  # SQLite: another one has the lock of the whole database
        self.answers[id].append(answer)


@pytest.mark.rest
async def test_exactly_one_function_runs_for_each_row(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, with_ledger: Settings
) -> None:
    seed = random.randrange(1 << 32)  # noqa: S311 - a test
    ran: dict[str, list[str]] = defaultdict(list)

    def ship() -> None:
        task = current_task()
        assert task.signal is not None
        ran[task.id].append("ship" if task.signal.payload == task.id else "ship another")

    def cancel() -> None:
        ran[current_task().id].append("cancel")

    shop, witness = Shop(engine, ledger, seed), Witness()
    async with (
        listening(with_ledger, witness, ship=ship, cancel=cancel),
        listening(with_ledger, witness, ship=ship, cancel=cancel),
    ):
        start = time.time() + 2
        deadlines = {f"pay-{number}": start + number * APART for number in range(ROWS)}
        with engine.begin() as session:
            ledger.make_tasks(
                session,
                [
                    {"func": "test.cancel", "at": datetime.fromtimestamp(deadline, UTC), "id": id,
                     "on_signal": "test.ship"}
                    for id, deadline in deadlines.items()
                ],
            )  # fmt: skip
        # Each row is signalled twice, at about the same moment.
        with ThreadPoolExecutor(SIGNALLERS) as signallers:
            sent = [
                signallers.submit(shop.signal, id, deadline, by)
                for id, deadline in deadlines.items()
                for by in ("ann", "bob")
            ]
            await asyncio.gather(*map(asyncio.wrap_future, sent))
        await until(lambda: all(row.status != Status.WAITING for row in harness.all_rows()))
    rows = {row.id: row for row in harness.all_rows()}
    answers = Counter(answer for answers in shop.answers.values() for answer in answers)
    logger.info("seed %d: %s, %s", seed, Counter(map(str, ran.values())), answers)
    assert ran.keys() == rows.keys()
    for id, row in rows.items():
        first = Change.SIGNALLED in shop.answers[id]
        assert ran[id] == (["ship"] if first else ["cancel"]), (seed, id, shop.answers[id])
        assert row.decided == ("signal" if first else "deadline"), (seed, id)
        assert shop.answers[id].count(Change.SIGNALLED) <= 1, (seed, id)
