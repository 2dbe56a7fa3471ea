"""With a ledger that has a horizon: rows cross it while listeners, Redis and clocks fail.

Tasks are made 10 minutes and some seconds ahead, an hour ahead, and 20 minutes ahead, with the
least horizon, 10 minutes; later each is put off or brought near, before or after it was relayed.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from sqlalchemy import Connection, create_engine, select, text
from sqlalchemy.orm import Session

from expirebridge.embedded.server import EmbeddedServer
from expirebridge.ledger import Ledger
from expirebridge.ledger.engine import begin_immediate
from expirebridge.ledger.sql_types import NowMs
from tests.faults.background import Background
from tests.faults.shop.scene import Trade, trading
from tests.faults.shop.terms import PROMISE
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.databases import NAMES, SQLITE, Database, DatabaseServer
from tests.kit.history import Forgot, Writer, now
from tests.kit.wrong_clock import needs_faketime, started_with

HORIZON = 600.0
ENV = {"EXPIREBRIDGE_LEDGER_HORIZON": "10m"}
SOON = (0.5, 2.0)
"""Seconds from now on for what is brought near."""
PAUSE = 0.05
STEPS = (240, -240, 0)
"""Seconds by which the clock of SQL is wrong, one after the other; the horizon is longer."""
KILLED = Fault(
    name="ledger: a listener is killed while rows cross the horizon",
    injected="`kill -9` of a listener; rows come near, are put off and brought near",
    promise=PROMISE,
)
FLUSHED = Fault(
    name="ledger: the database is flushed while rows cross the horizon",
    injected="`FLUSHALL`, likewise",
    promise=PROMISE,
)
STEPPED = Fault(
    name="ledger: the clock of SQL jumps while rows cross the horizon",
    injected="the SQL server's clock is set 4 min ahead, 4 min back, and right, likewise",
    promise=PROMISE,
)


@dataclass(eq=False)
class Ahead(Background):
    """Makes tasks beyond the horizon, and brings them near; what it promised is in `orders`."""

    trade: Trade
    chance: random.Random
    crossed: int = 0
    """How many were relayed before they were brought near."""
    aged: int = 0
    """How many came near by the passing of time alone."""
    waiting: list[tuple[str, float]] = field(default_factory=list)
    """Ids, and when something is next done with each, by time.monotonic()."""

    def __post_init__(self) -> None:
        super().__init__()
        self._engine = create_engine(self.trade.engine.url, pool_pre_ping=True)
        if self._engine.dialect.name == SQLITE:
            begin_immediate(self._engine)
        self._ledger = Ledger(self._engine.url)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            self._make()
            self._change_those_whose_turn_it_is()

    def _make(self) -> None:
        id = uuid4().hex
        ahead = self.chance.choice([HORIZON + self.chance.uniform(0.2, 3), 1200.0, 3600.0])
        due = now() + round(ahead * 1000)
        with Session(self._engine) as session, session.begin():
            order = {"id": id, "due": due}
            session.execute(text("INSERT INTO orders VALUES (:id, :due, 0)"), order)
            self._ledger.make_task(session, "selling.deliver", [0, 0], at=_at(due), id=id)
        self.waiting.append((id, time.monotonic() + self.chance.uniform(0, 4)))

    def _change_those_whose_turn_it_is(self) -> None:
        present = time.monotonic()
        turn = [id for id, at in self.waiting if at <= present]
        self.waiting = [each for each in self.waiting if each[1] > present]
        for id in turn:
            if self.chance.random() < 0.3:
                self._move(id, 1200.0 + self.chance.uniform(0, 1))
                self.waiting.append((id, time.monotonic() + self.chance.uniform(0, 3)))
            else:
                self.bring_near(id)

    def until_more_have_crossed(self) -> None:
        """Wait until more tasks have come near, in either way."""
        crossed, aged = self.crossed + 5, self.aged + 5
        self.trade.until(lambda: self.crossed >= crossed and self.aged >= aged, "crossings")

    def bring_near(self, id: str) -> None:
        """Let a task be due soon: its row is far, and ages; or it is given another time."""
        if self.chance.random() < 0.5 and self._age(id):
            self.aged += 1
        else:
            self._move(id, self.chance.uniform(*SOON))

    def close(self) -> None:
        self._engine.dispose()

    def bring_all_near(self) -> None:
        """Leave none far ahead."""
        for id, _ in self.waiting:
            self.bring_near(id)
        self.waiting.clear()

    def _move(self, id: str, ahead: float) -> None:
        due = now() + round(ahead * 1000)
        with Session(self._engine) as session, session.begin():
            relayed = "SELECT stamp FROM expirebridge_task WHERE id = :id"
            self.crossed += bool(session.scalar(text(relayed), {"id": id}))
            assert self._ledger.reschedule(session, id, at=_at(due))
            _promise(session.connection(), id, due)

    def _age(self, id: str) -> bool:
        """Let time pass for a row that is kept back: it asks for one that is near."""
        due = now() + round(self.chance.uniform(*SOON) * 1000)
        aged = (
            "UPDATE expirebridge_task SET at_ms = :due "
            "WHERE id = :id AND stamp = 0 AND todo = 1 AND planned > :far"
        )
        far = now() + round(2 * HORIZON * 1000) - 60_000
        with self._engine.begin() as connection:
            values = {"id": id, "due": due, "far": far}
            if not connection.execute(text(aged), values).rowcount:
                return False
            _promise(connection, id, due)
        return True


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _promise(connection: Connection, id: str, due: int) -> None:
    connection.execute(text("UPDATE orders SET due = :due WHERE id = :id"), {"id": id, "due": due})


def kill_listener(trade: Trade, _server: EmbeddedServer, _history: Writer) -> None:
    trade.kill(next(iter(trade.listeners)))
    trade.start_listener()


def flush(_trade: Trade, server: EmbeddedServer, history: Writer) -> None:
    with redis.Redis(port=server.port) as client:
        client.flushall()
    history.write(Forgot(at=0, until=now()))


FAULTS: dict[Callable[[Trade, EmbeddedServer, Writer], None], Fault] = {
    kill_listener: KILLED,
    flush: FLUSHED,
}
IN_SHORT = {(kill_listener, SQLITE), (flush, "postgresql")}
"""What runs where one round is asked for."""
CASES = [(act, name) for act in FAULTS for name in NAMES if ROUNDS > 1 or (act, name) in IN_SHORT]


@contextmanager
def ahead_of(trade: Trade) -> Iterator[Ahead]:
    """Tasks are made ahead while the block runs, and brought near when it ends."""
    seed = now()
    ahead = Ahead(trade, random.Random(seed))  # noqa: S311 - for a test
    try:
        with ahead:
            yield ahead
        ahead.bring_all_near()
    finally:
        ahead.close()
    assert ahead.crossed, seed
    assert ahead.aged, seed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("round", range(max(1, ROUNDS // 4)))
@pytest.mark.parametrize(("act", "name"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_each_task_runs_once_and_none_early(
    act: Callable[[Trade, EmbeddedServer, Writer], None], name: str, database: Database,
    binary: Path, tmp_path: Path, history: Writer, round: int,
) -> None:  # fmt: skip
    times = 3
    with (
        EmbeddedServer(binary=binary) as server,
        trading(database, server.url, tmp_path / "tasks", history, env=ENV) as trade,
    ):
        with ahead_of(trade) as ahead:
            for _ in range(times):
                ahead.until_more_have_crossed()
                act(trade, server, history)
                trade.until_caught_up()
        trade.is_sound(FAULTS[act], name, times=times)


@needs_faketime
@pytest.mark.skipif(ROUNDS == 1, reason="a database of its own: in make faults")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
def test_each_task_runs_once_and_none_early_when_the_clock_of_sql_jumps(
    name: str, binary: Path, tmp_path: Path, history: Writer
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == tmp_path.stat().st_uid and folder.name.startswith("pytest"):
            folder.chmod(0o755)  # the database runs as a user of its own
    tmp_path.chmod(0o755)
    with started_with(FAKETIME_TIMESTAMP_FILE=str(offset), FAKETIME_NO_CACHE="1"):
        database = DatabaseServer(name)
    try:
        with (
            EmbeddedServer(binary=binary) as server,
            trading(database, server.url, tmp_path / "tasks", history, env=ENV) as trade,
        ):
            trade.stop_selling()  # what it sells is due by the clock of SQL
            with ahead_of(trade) as ahead:
                for seconds in STEPS:
                    ahead.until_more_have_crossed()
                    offset.write_text(f"{seconds:+d}")
                    trade.until(partial(is_off, trade, seconds), "the jump")
            trade.start_producer()
            trade.is_sound(STEPPED, name, times=len(STEPS))
    finally:
        database.close()


def is_off(trade: Trade, seconds: int) -> bool:
    """Whether the clock of SQL is wrong by about so much."""
    found = trade.scalar(str(select(NowMs()).compile(dialect=trade.engine.dialect)))
    return bool(abs(found - now() - seconds * 1000) < 60_000)
