"""A ledger and a server beside each other, and what an application would do with its rows."""

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, delete, insert, select, update

from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger import retention
from expirebridge.ledger.binding import Addresses, Binder
from expirebridge.ledger.relay import Relay, finish
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.rows import DesiredState, Status, SyncState
from expirebridge.ledger.sql_tables import Tables
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.patience import PATIENCE

HERE: Final = Addresses(("here",), "1 expirebridge", "here")


@dataclass
class LedgerHarness:
    """One ledger, with a relay between it and one server."""

    engine: Engine
    made: Tables
    store: Store
    name: str = "default"
    place: Addresses = HERE
    horizon: float | None = None

    def __post_init__(self) -> None:
        database = self.store.database
        self.rows = RelayStore(
            self.engine, self.made, name=self.name, layout=database.layout,
            partition=database.layout.number_of(database.prefix), horizon=self.horizon,
        )  # fmt: skip

    def relay(self, place: Addresses | None = None, store: Store | None = None) -> Relay:
        own = (place or self.place)._replace(partitions=self.store.database.layout.count)

        def there() -> Store:
            return store or self.store

        binder = Binder(self.rows, there, own, lambda: None)
        return Relay(self.rows, there, Settings(ledger_horizon=self.horizon), binder)

    def settle_down(self) -> None:
        """Make passes until nothing is left to do in either direction."""
        relay = self.relay()
        while finish(relay.carry()) or finish(relay.bring_back()):  # -1: interrupted
            pass

    # What an application does, in plain SQL

    def insert(self, id: str, delay_ms: int = 0, **more: Any) -> None:
        values: dict[str, Any] = {"func": "mail.send", "params": json.dumps([1])} | more
        if "at_ms" not in values:
            values["delay_ms"] = delay_ms
        with self.engine.begin() as connection:
            connection.execute(insert(self.made.task).values(id=id, ledger=self.name, **values))

    def change(self, id: str, **values: Any) -> None:
        task = self.made.task
        with self.engine.begin() as connection:
            connection.execute(
                update(task)
                .where(task.c.ledger == self.name, task.c.id == id)
                .values(revision=task.c.revision + 1, todo=SyncState.RELAY, **values)
            )

    def cancel(self, id: str) -> None:
        self.change(id, wanted=DesiredState.CANCELLED.value)

    def row(self, id: str) -> Any:
        task = self.made.task
        with self.engine.connect() as connection:
            return connection.execute(
                select(task).where(task.c.ledger == self.name, task.c.id == id)
            ).first()

    def all_rows(self) -> list[Any]:
        task = self.made.task
        query = select(task).where(task.c.ledger == self.name).order_by(task.c.id)
        with self.engine.connect() as connection:
            return list(connection.execute(query))

    def status(self, id: str) -> Status:
        return Status(self.row(id).status)

    def prune_old(self, keep: float = 60.0) -> int:
        """Make one round through the finished rows, as a listener does."""
        rows = retention.Retention(
            self.engine, self.made, self.relay(), lambda: self.store, name=self.name
        )
        count, place = 0, retention.RetentionCursor()
        while True:
            pruned = rows.prune(keep, place)
            count += pruned.deleted
            if pruned.place is None:
                return count
            place = pruned.place

    def age(self, *ids: str) -> None:
        """Have these rows, and what Redis holds of them, finished long ago."""
        task = self.made.task
        with self.engine.begin() as connection:
            connection.execute(update(task).where(task.c.id.in_(ids)).values(modified=1))
        for id in ids:
            record = f"expirebridge:task:{id}"
            if self.store.client.hget(record, "ended"):
                self.store.client.hset(record, "ended", 1)

    def prune(self, id: str) -> None:
        task = self.made.task
        with self.engine.begin() as connection:
            connection.execute(delete(task).where(task.c.ledger == self.name, task.c.id == id))

    def numbers(self) -> tuple[int, int, int]:
        """The last number taken, the highest stamp, and what Redis has seen."""
        found = self.rows.read()
        assert found is not None
        return found.number, found.stamp, self.store.run(ledger_calls.read_ledger()).number


async def until(holds: Any) -> None:
    """Until rows say so: there is no signal for that but to look."""
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - a row has no event
            await asyncio.sleep(0.02)


def wait_for_threads() -> None:
    """Wait until those have ended in which listeners wait for their ledgers."""
    for thread in threading.enumerate():
        if thread.name == "expirebridge-ledger":
            thread.join(PATIENCE)


Snapshot = dict[bytes, tuple[int, bytes]]
"""When each key ends, in ms, or -1, and its value."""


def snapshot(client: Any) -> Snapshot:
    """All that a server holds."""
    names = sorted(client.keys("*"))
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.pexpiretime(name)
            pipe.dump(name)
        found = pipe.execute()
    return dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))


def restore(client: Any, past: Snapshot) -> None:
    """Let a server hold that, and nothing else."""
    client.flushdb()
    for name, (ends, value) in past.items():
        client.restore(name, max(ends, 0), value, absttl=True)
