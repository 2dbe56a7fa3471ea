"""With a ledger: Redis loses something while a shop sells and two listeners deliver."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from sqlalchemy import text

from expirebridge.embedded.server import EmbeddedServer
from tests.faults.power import FSYNC_WITHIN, Power
from tests.faults.shop.scene import Trade, trading
from tests.faults.shop.terms import PROMISE
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.databases import NAMES, SQLITE, Database
from tests.kit.history import Down, Forgot, Writer, now
from tests.kit.sentinels import Sentinels

Injection = Callable[[Trade, EmbeddedServer, Writer], None]
Failover = Callable[[Sentinels, Trade, Writer], None]


def flush(_: Trade, server: EmbeddedServer, history: Writer) -> None:
    with redis.Redis(port=server.port) as client:
        client.flushall()
    history.write(Forgot(at=0, until=now()))


def restart_empty(_: Trade, server: EmbeddedServer, history: Writer) -> None:
    server.kill()
    history.write(Forgot(at=0, until=now()))
    server.start()


def restore_older(trade: Trade, server: EmbeddedServer, history: Writer) -> None:
    at = now()
    with redis.Redis(port=server.port) as client:
        client.save()
    snapshot = server.directory / "dump.rdb"
    kept = shutil.copy(snapshot, server.directory / "kept.rdb")
    trade.until_delivered(30)
    server.kill()
    shutil.copy(kept, snapshot)
    history.write(Forgot(at=at, until=now()))
    server.start()


def lose_power(trade: Trade, server: EmbeddedServer, history: Writer) -> None:
    with Power(server) as power:
        begun = now()
        while now() < begun + FSYNC_WITHIN + 500:
            trade.until_delivered(1)
        power.lose_unsynced(random.Random(begun), history)  # noqa: S311 - for a test
    server.start()


FAULTS: dict[Injection, Fault] = {
    flush: Fault(
        name="ledger: the database is flushed",
        injected="`FLUSHALL` while a shop sells and two listeners deliver",
        promise=PROMISE,
    ),
    restart_empty: Fault(
        name="ledger: the server comes back empty",
        injected="`kill -9` and restart of a server without any persistence, likewise",
        promise=PROMISE,
    ),
    restore_older: Fault(
        name="ledger: an older snapshot is restored",
        injected="`kill -9`, and a restart with a snapshot that is older than the last 30 tasks",
        promise=PROMISE,
    ),
    lose_power: Fault(
        name="ledger: the server loses its power, `appendfsync everysec`",
        injected="`kill -9`, and its append-only file is cut within what it wrote in two seconds",
        promise=PROMISE,
    ),
}
BEHIND = Fault(
    name="ledger: sentinels: the primary is killed, and its replica was behind",
    injected="the replica loses its link, tasks are made and run, the primary is killed, and the "
    "sentinels promote the replica",
    promise=PROMISE,
)
ORDERLY = Fault(
    name="ledger: sentinels: an orderly failover",
    injected="`SENTINEL FAILOVER`; the old primary takes writes until it learns of it",
    promise=PROMISE,
)
IN_SHORT = {(flush, "postgresql"), (restore_older, SQLITE)}
"""What runs where one round is asked for."""
CASES = [
    (inject, name) for inject in FAULTS for name in NAMES
    if ROUNDS > 1 or (inject, name) in IN_SHORT
]  # fmt: skip
SENTINELS_LEASE = 3.0
"""Seconds: a listener asks for the primary once a second, and its leases must outlast that."""


@pytest.mark.parametrize("round", range(max(1, ROUNDS // 4)))
@pytest.mark.parametrize(
    ("inject", "name"), CASES, ids=lambda part: getattr(part, "__name__", part)
)
def test_nothing_is_lost(
    inject: Injection, name: str, database: Database, binary: Path, tmp_path: Path,
    history: Writer, round: int,
) -> None:  # fmt: skip
    times = 3 if ROUNDS > 1 else 1
    options = {} if inject in {flush, lose_power} else {"appendonly": "no"}
    with (
        EmbeddedServer(binary=binary, options=options) as server,
        trading(database, server.url, tmp_path / "tasks", history) as trade,
    ):
        for _ in range(times):
            trade.until_delivered(20)
            inject(trade, server, history)
            trade.until_caught_up()
        trade.is_sound(FAULTS[inject], name, times=times)


def lose_link(sentinels: Sentinels, trade: Trade, history: Writer) -> None:
    """The replica loses its link, and is promoted when the primary is killed."""
    primary, replica = sentinels.servers
    known = now()
    sentinels.until_in_step()
    with sentinels.client(replica) as client:
        client.config_set("masterauth", "wrong")
    with sentinels.client(primary) as client:
        client.client_kill_filter(_type="replica")
    trade.until_delivered(10)
    primary.kill()
    sentinels.until_primary(replica)
    history.write(Forgot(at=known, until=now()))


def change_places(sentinels: Sentinels, trade: Trade, history: Writer) -> None:
    """The sentinels make the replica the primary; the old one takes writes for about a second."""
    known = now()
    sentinels.until_in_step()
    sentinels.fail_over()
    sentinels.until_primary(sentinels.servers[1])
    trade.until_delivered(20)  # by now all have followed
    history.write(Forgot(at=known, until=now()))


FAILOVERS: dict[Failover, Fault] = {lose_link: BEHIND, change_places: ORDERLY}


@pytest.mark.skipif(ROUNDS == 1, reason="sentinels take long: in make faults")
@pytest.mark.parametrize("round", range(max(1, ROUNDS // 4)))
@pytest.mark.parametrize(
    ("fail_over", "name"),
    [(lose_link, SQLITE), (lose_link, "postgresql"), (change_places, "mariadb")],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_nothing_is_lost_in_a_failover(
    fail_over: Failover, name: str, database: Database,
    binary: Path, tmp_path: Path, history: Writer, round: int,
) -> None:  # fmt: skip
    with (
        Sentinels(binary) as sentinels,
        trading(
            database, sentinels.url, tmp_path / "tasks", history, lease=SENTINELS_LEASE
        ) as trade,
    ):
        trade.until_delivered(20)
        fail_over(sentinels, trade, history)
        trade.until_caught_up()
        trade.is_sound(FAILOVERS[fail_over], name, times=1)


@pytest.mark.parametrize("name", NAMES if ROUNDS > 1 else NAMES[:1])
def test_an_intact_restart_rewrites_no_row(
    database: Database, binary: Path, tmp_path: Path, history: Writer
) -> None:
    with (
        EmbeddedServer(binary=binary) as server,
        trading(database, server.url, tmp_path / "tasks", history) as trade,
    ):
        trade.until_delivered(20)
        trade.stop_selling()
        trade.until_settled()
        with trade.engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO expirebridge_task (id, func, params, delay_ms) "
                    "VALUES (:id, 'recorded.labour', '[0,0]', 259200000)"
                ),
                [{"id": f"later-{number}"} for number in range(100)],
            )
        trade.until(lambda: trade.scalar(WAITING) == 0, "the relay of all rows")
        before = rows(trade)
        at = now()
        server.kill()
        server.start()
        history.write(Down(at=at, until=now()))
        trade.start_producer()
        trade.until_delivered(5)  # the gate is open again
        assert {id: row for id, row in rows(trade).items() if id in before} == before
        assert len(before) >= 120


WAITING = "SELECT count(*) FROM expirebridge_task WHERE todo > 0"


def rows(trade: Trade) -> dict[str, tuple[object, ...]]:
    """Each row with all that a pass would write."""
    with trade.engine.connect() as connection:
        found = connection.execute(
            text("SELECT id, stamp, todo, status, due, modified FROM expirebridge_task")
        )
        return {id: tuple(rest) for id, *rest in found}
