"""Whatever another transaction has locked, tasks whose rows are free are relayed, run and written.

A table: what the ledger was about to do with a row, and how that row is locked. While the lock is
held, ten other tasks are made, run and are written back; after it, the locked one follows.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest
import redis
from sqlalchemy import Connection, Engine, create_engine, text

from expirebridge import Bridge
from expirebridge.ledger import Ledger
from expirebridge.ledger.rows import Status
from expirebridge.settings import Settings
from tests.kit.ledgers import LedgerHarness, restore, snapshot, until
from tests.kit.witness import Witness, listening

HOUR: Final = 3_600_000
OTHERS: Final = [f"other{number}" for number in range(10)]
LOST: Final = [f"lost{number}" for number in range(10)]


def note(number: int) -> None:
    """A handler."""


class Scene(NamedTuple):
    """A ledger with a server, and the transaction of an application that stays open."""

    harness: LedgerHarness
    ledger: Ledger
    bridge: Bridge
    client: redis.Redis
    locking: Connection

    def insert(self, *ids: str, delay_ms: int = 0, **more: Any) -> None:
        for id in ids:
            self.harness.insert(id, delay_ms, func="test.note", params="[1]", **more)


@pytest.fixture
def locking(engine: Engine) -> Iterator[Connection]:
    """An open transaction of the application."""
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite locks the whole file")
    own = create_engine(engine.url, isolation_level="READ COMMITTED")
    with own.connect() as connection:
        yield connection
        connection.rollback()
    own.dispose()


@pytest.fixture
def scene(
    harness: LedgerHarness, ledger: Ledger, bridge: Bridge, client: redis.Redis,
    locking: Connection,
) -> Scene:  # fmt: skip
    return Scene(harness, ledger, bridge, client, locking)


# How a row is locked. Each leaves the task as it was, if the transaction is rolled back.


def for_update(scene: Scene, id: str) -> None:
    query = "SELECT id FROM expirebridge_task WHERE ledger = 'default' AND id = :id FOR UPDATE"
    scene.locking.execute(text(query), {"id": id})


def updated(scene: Scene, id: str) -> None:
    change = "UPDATE expirebridge_task SET ext_string = 'x' WHERE ledger = 'default' AND id = :id"
    scene.locking.execute(text(change), {"id": id})


def rescheduled(scene: Scene, id: str) -> None:
    scene.ledger.reschedule(scene.locking, id, 0)


LOCKS: Final = (for_update, updated, rescheduled)


# What the ledger was about to do with the row. Each is called before the row is locked, goes on
# while it is, and again after that.


def is_new(scene: Scene) -> Iterator[None]:
    scene.insert("locked")
    yield


def is_changed(scene: Scene) -> Iterator[None]:
    scene.insert("locked", delay_ms=HOUR)
    scene.harness.settle_down()
    scene.harness.change("locked", at_ms=1, delay_ms=None, due=None)
    yield


def was_cancelled_in_redis(scene: Scene) -> Iterator[None]:
    scene.insert("locked", delay_ms=HOUR)
    scene.harness.settle_down()
    yield
    scene.bridge.run_now("locked")


def was_lost(scene: Scene) -> Iterator[None]:
    """Redis is empty: what is not marked stays lost."""
    scene.insert("locked", *LOST)
    scene.harness.settle_down()
    yield
    scene.client.flushall()


def was_lost_in_part(scene: Scene) -> Iterator[None]:
    """A failover to a replica that lacks the end."""
    scene.insert("before")
    scene.harness.settle_down()
    past = snapshot(scene.client)
    scene.insert("locked", *LOST)
    scene.harness.settle_down()
    yield
    restore(scene.client, past)


def is_being_rebuilt(scene: Scene) -> Iterator[None]:
    scene.insert("locked", *LOST)
    scene.harness.settle_down()
    scene.client.flushall()
    steps = scene.harness.relay().carry()
    while next(steps) != "number taken":
        pass
    yield


def has_lost_its_record(scene: Scene) -> Iterator[None]:
    scene.insert("locked", delay_ms=HOUR)
    scene.harness.settle_down()
    yield
    scene.client.delete("expirebridge:task:locked")
    scene.client.zadd("expirebridge:pending", {"locked": 1})
    yield
    with scene.harness.engine.begin() as session:
        scene.ledger.reschedule(session, "locked", 0)


SITUATIONS: Final = (
    is_new, is_changed, was_cancelled_in_redis, was_lost, was_lost_in_part, is_being_rebuilt,
    has_lost_its_record,
)  # fmt: skip


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.__name__)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
async def test_a_locked_row_holds_up_no_other(
    scene: Scene, with_ledger: Settings, situation: Callable[[Scene], Iterator[None]],
    lock: Callable[[Scene, str], None],
) -> None:  # fmt: skip
    harness, witness = scene.harness, Witness()
    steps = situation(scene)
    next(steps)
    lock(scene, "locked")
    next(steps, None)
    others = OTHERS + [id for id in LOST if harness.row(id)]
    async with listening(with_ledger, witness, note=note):
        scene.insert(*OTHERS)
        await until(lambda: all(harness.status(id) is Status.SUCCEEDED for id in others))
        await asyncio.to_thread(scene.locking.rollback)
        next(steps, None)
        await until(lambda: harness.status("locked") is Status.SUCCEEDED)
