"""A shop in a process of its own: each order and its task are one transaction. It ends with stdin.

It takes the history's folder and the database's URL. It writes down in the history what was
committed. What is in the table `orders` counts as well: it may be killed before it wrote that down.
"""

import random
import select
import sys
import time
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from expirebridge import Change
from expirebridge.errors import LedgerError
from expirebridge.ledger import Ledger
from expirebridge.ledger.commit_notifier import CommitNotifier
from expirebridge.ledger.engine import begin_immediate
from tests.faults.shop.terms import ATTEMPTS
from tests.kit.history import Cancelled, Made, Writer, now
from tests.kit.points import reach

PAUSE = 0.03
"""Seconds between two orders."""
FURTHEST = 1.5
"""Seconds from now in which tasks are due; the nearest are due at once."""
WORK = 0.02
RETRY = [0.2] * (ATTEMPTS - 1)
RAISES_EVERY = 20
CANCELS_EVERY = 8
CLOCK_SLACK = 2
"""Milliseconds by which SQLite's own clock, a fraction of a day, may be wrong."""


class Shop:
    """Sells, and takes back some of what it sold."""

    def __init__(self, engine: Engine, ledger: Ledger, history: Writer) -> None:
        self._engine, self._ledger, self._history = engine, ledger, history
        self._chance = random.Random()  # noqa: S311 - for a test
        self._sold = 0
        self._waiting: list[str] = []

    def sell(self) -> None:
        """An order and its task."""
        self._sold += 1
        id, delay = uuid4().hex, round(self._chance.uniform(0, FURTHEST), 3)
        func = "recorded.labour" if self._sold % 3 == 0 else "selling.deliver"
        args = [self._chance.uniform(0, WORK), int(self._sold % RAISES_EVERY == 0)]
        due = now() + round(delay * 1000) - CLOCK_SLACK
        with Session(self._engine) as session, session.begin():
            session.connection()
            reach("producer: begun")
            session.execute(
                text("INSERT INTO orders VALUES (:id, :due, 0)"), {"id": id, "due": due}
            )
            reach("producer: order written")
            self._ledger.make_task(session, func, args, delay, id=id, retry=RETRY)
            reach("producer: task written")
        reach("producer: notified")
        self._history.write(Made(id=id, due=due, attempts=ATTEMPTS))
        if delay > FURTHEST / 2:
            self._waiting.append(id)  # the latest has not run yet
        if self._sold % CANCELS_EVERY == 0 and self._waiting:
            self._take_back(self._waiting.pop())

    def _take_back(self, id: str) -> None:
        with Session(self._engine) as session, session.begin():
            session.connection()
            if self._ledger.cancel(session, id) is not Change.CANCELLED:
                return
            session.execute(text("UPDATE orders SET returned = 1 WHERE id = :id"), {"id": id})
        self._history.write(Cancelled(id=id, answer=Change.RUNNING.value))


def main() -> None:
    folder, url = sys.argv[1:]
    engine = create_engine(url, pool_pre_ping=True)
    if engine.dialect.name == "sqlite":
        begin_immediate(engine)
    notify = CommitNotifier.notify

    def notify_later(self: CommitNotifier) -> None:
        reach("producer: committed")
        notify(self)

    CommitNotifier.notify = notify_later  # type: ignore[method-assign]
    shop = Shop(engine, Ledger(), Writer(Path(folder)))
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        try:
            shop.sell()
        except (DBAPIError, LedgerError):
            time.sleep(PAUSE)  # the database is away: nothing was promised


if __name__ == "__main__":
    main()
