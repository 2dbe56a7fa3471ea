"""A ledger and a database of several partitions: each has passes of its own."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import pytest
import redis
from sqlalchemy import Engine, event, select

from expirebridge import Bridge
from expirebridge.connection import clients
from expirebridge.errors import LedgerUnsuitable
from expirebridge.hooks import End
from expirebridge.ledger import Tables
from expirebridge.ledger.binding import place_of
from expirebridge.ledger.calls import read_ledgers
from expirebridge.ledger.checks import check_dirty
from expirebridge.ledger.commit_notifier import CommitNotifier
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.relay import finish
from expirebridge.ledger.roles import RelayLoop
from expirebridge.ledger.rows import Status
from expirebridge.ledger.table_checks import check_ledger
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore, Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.partitions import PartitionLayout
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.witness import Witness, listening

Look = tuple[Engine, Callable[..., Awaitable[int]]]

COUNT = 4
LAYOUT = PartitionLayout("expirebridge", COUNT)
IDS = [f"t{number}" for number in range(12)]


def in_partition(number: int) -> str:
    """An id that belongs there."""
    return next(id for id in IDS if LAYOUT.partition_of(id) == number)


@pytest.fixture
def several(url: str, bridge: Bridge) -> Partitions:
    """The database, which has several partitions."""
    bridge.create_partitions(COUNT)
    return Partitions(clients.producer_client(url), prefix="expirebridge")


@pytest.fixture
def ledgers(engine: Engine, made: Tables, several: Partitions) -> list[LedgerHarness]:
    """Those of each partition."""
    return [LedgerHarness(engine, made, store) for store in several.each()]


@pytest.fixture
def with_ledger(url: str, engine: Engine) -> Settings:
    return Settings(url=url, ledger=engine.url.render_as_string(hide_password=False), lease=1.0)


def passes_of(harness: LedgerHarness) -> dict[int, tuple[int, int]]:
    """Of each partition the last number taken, and the highest stamp."""
    passes = harness.made.passes.c
    with harness.engine.connect() as connection:
        rows = connection.execute(select(passes.partition, passes.number, passes.stamp))
        return {partition: (number, stamp) for partition, number, stamp in rows}


def slots_of(harness: LedgerHarness) -> dict[str, int | None]:
    return {row.id: row.slot for row in harness.all_rows()}


def into(ran: list[int]) -> Callable[[int], None]:
    def run(number: int) -> None:
        ran.append(number)

    return run


def test_the_ids_are_of_all_partitions() -> None:
    assert {LAYOUT.partition_of(id) for id in IDS} == set(range(COUNT))


def test_the_relay_finds_the_partition_of_a_foreign_row(
    ledgers: list[LedgerHarness], bridge: Bridge
) -> None:
    first = ledgers[0]
    for id in IDS:
        first.insert(id, 3_600_000)
    assert set(slots_of(first).values()) == {None}
    for each in ledgers:
        each.settle_down()
    assert slots_of(first) == {id: LAYOUT.partition_of(id) for id in IDS}
    assert {id for id in IDS if bridge.get(id) is None} == set()


def test_a_row_costs_the_other_partitions_no_pass(ledgers: list[LedgerHarness]) -> None:
    for each in ledgers:
        each.settle_down()
    before = passes_of(ledgers[0])
    ledgers[0].insert(in_partition(2), 3_600_000)
    for each in ledgers:
        each.settle_down()
    after = passes_of(ledgers[0])
    assert {number for number in range(COUNT) if before[number] != after[number]} == {2}


def test_a_row_whose_partition_is_not_known_yet_closes_every_gate(
    ledgers: list[LedgerHarness],
) -> None:
    id = in_partition(2)
    ledgers[0].insert(id, 3_600_000)
    for each in ledgers:
        each.settle_down()
    ledgers[0].change(id, slot=None)
    with ledgers[0].engine.begin() as connection:
        connection.execute(ledgers[0].made.task.update().values(todo=2))
    for each in ledgers:
        numbers = each.rows.read()
        assert numbers is not None
        assert numbers.rebuilding


def looked_at(with_ledger: Settings, several: Partitions) -> str:
    findings = check_ledger(with_ledger, lambda: several.run(read_ledgers()))
    return "\n".join(f"{one.level} {one}" for one in findings)


def test_what_is_seen_is_of_all_partitions(
    ledgers: list[LedgerHarness], with_ledger: Settings, several: Partitions, client: redis.Redis
) -> None:
    ledger_engine = LedgerEngine(with_ledger)
    with closing(ledger_engine):
        own = ledger_engine.all_partitions(several)
        for id in IDS:
            ledgers[0].insert(id, 3_600_000)
        for each in own:
            while each.relay_once():
                pass
    assert re.match(
        r"ok rows are carried; pass \d+ in 4 partitions", looked_at(with_ledger, several)
    )
    inspector = LedgerInspector(with_ledger)
    for partition, (ids, since) in {1: ("a", 2e15), 3: ("bcd", 1e15)}.items():
        client.zadd(f"{LAYOUT.prefix_of(partition)}:dirty", dict.fromkeys(ids, since))
    figures = inspector.figures(several.run(read_ledgers()))
    assert (figures.write_back.dirty, figures.partitions, figures.lost) == (4, COUNT, False)
    assert 5e8 < (figures.write_back.oldest or 0) < 1e9
    [behind] = several.run(check_dirty(5))
    assert str(behind).startswith("4 rows of the ledger do not know yet")
    client.delete(f"{LAYOUT.prefix_of(3)}:ledger")  # what it has seen is lost there
    assert inspector.figures(several.run(read_ledgers())).lost
    assert "Redis has lost something" in looked_at(with_ledger, several)


@contextmanager
def statements_of(engine: Engine) -> Iterator[list[str]]:
    """The queries that are sent through an engine during the block."""
    sent: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "SELECT" in statement:  # SQLite begins its transactions with one, too
            sent.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


@asynccontextmanager
async def looking(with_ledger: Settings, several: Partitions) -> AsyncIterator[Look]:
    """A listener's ledger, and a look of the partitions with these numbers at the same moment."""
    client = clients.async_producer_client(with_ledger.url)
    stores = [
        AsyncStore(client, prefix=each.database.prefix, partitions=COUNT) for each in several.each()
    ]
    with closing(LedgerEngine(with_ledger)) as ledger_engine:
        own = ledger_engine.all_partitions(several)

        async def look(*numbers: int) -> int:
            since = time.monotonic()
            looks = (own[each].look_and_relay(stores[each], since) for each in numbers)
            return sum(await asyncio.gather(*looks))

        try:
            yield ledger_engine.engine, look
        finally:
            await client.aclose()


async def test_partitions_that_look_at_once_ask_the_ledger_once(
    ledgers: list[LedgerHarness], with_ledger: Settings, several: Partitions
) -> None:
    async with looking(with_ledger, several) as (engine, look):
        await look(*range(COUNT))
        await look(*range(COUNT))
        with statements_of(engine) as sent:
            assert await look(*range(COUNT)) == 0
        assert sum("FROM expirebridge_pass" in one for one in sent) == 1
        assert sum("FROM expirebridge_series" in one for one in sent) == 1
        assert len(sent) == 2
        for id in IDS:
            ledgers[0].insert(id, 3_600_000)
        assert await look(*range(COUNT)) == len(IDS)  # sorted, and carried, in one look
        for each in range(COUNT):  # a row that another partition had locked is stamped by the next
            await look(each)
        assert {row.todo for row in ledgers[0].all_rows()} == {0}


async def test_a_look_is_not_answered_by_what_was_read_before_it(
    ledgers: list[LedgerHarness], with_ledger: Settings, several: Partitions
) -> None:
    async with looking(with_ledger, several) as (_, look):
        await look(*range(COUNT))
        ledgers[0].insert(in_partition(2), 3_600_000)
        assert await look(2) == 1


async def test_a_look_finds_what_redis_has_for_a_row(
    ledgers: list[LedgerHarness], with_ledger: Settings, several: Partitions, bridge: Bridge
) -> None:
    id = in_partition(2)
    ledgers[0].insert(id, 3_600_000)
    async with looking(with_ledger, several) as (_, look):
        await look(*range(COUNT))
        assert await look(2) == 0
        bridge.reschedule(id, 60)
        before = ledgers[0].row(id).due
        assert await look(2) == 1
        assert ledgers[0].row(id).due < before


async def test_a_look_finds_that_redis_lost_a_batch(
    ledgers: list[LedgerHarness], with_ledger: Settings, several: Partitions, client: redis.Redis
) -> None:
    id = in_partition(2)
    ledgers[0].insert(id, 3_600_000)
    async with looking(with_ledger, several) as (_, look):
        await look(*range(COUNT))
        client.delete(f"{LAYOUT.prefix_of(2)}:ledger", f"{LAYOUT.prefix_of(2)}:task:{id}")
        assert await look(2) == 1
    assert client.exists(f"{LAYOUT.prefix_of(2)}:task:{id}")


def test_one_partition_at_rest_asks_each_side_once(
    engine: Engine, made: Tables, with_ledger: Settings, bridge: Bridge, client: redis.Redis
) -> None:
    server = Partitions(clients.producer_client(with_ledger.url), prefix="expirebridge")
    with closing(LedgerEngine(with_ledger)) as ledger_engine, closing(server):
        [partition] = ledger_engine.all_partitions(server)
        partition.relay_once()
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        with statements_of(ledger_engine.engine) as sent:
            partition.relay_once()
        assert len(sent) == 2
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1


async def test_rows_run_and_are_rebuilt_in_each_partition(
    ledgers: list[LedgerHarness], with_ledger: Settings, client: redis.Redis
) -> None:
    ran: list[int] = []
    witness, first = Witness(), ledgers[0]
    for number, id in enumerate(IDS):
        first.insert(id, func="test.run", params=f"[{number}]")
        first.insert(f"{id}-later", 3_000, func="test.run", params=f"[{100 + number}]")
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(len(IDS), End.SUCCEEDED)
        client.flushall()
        await witness.until_ended(2 * len(IDS), End.SUCCEEDED)
        await until(lambda: all(row.status == Status.SUCCEEDED for row in first.all_rows()))
    assert set(ran) == {*range(12), *range(100, 112)}
    assert sorted(passes_of(first)) == list(range(COUNT))


async def test_a_notification_reaches_every_partition(
    ledgers: list[LedgerHarness], with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RelayLoop, "interval", 3600.0)
    ran: list[int] = []
    witness, notifier = Witness(), CommitNotifier(with_ledger)
    ledgers[0].insert(in_partition(0), func="test.run", params="[0]")
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(1)
        ledgers[0].insert(in_partition(3), func="test.run", params="[3]")
        notifier.notify()
        await witness.until_ended(2)
    assert ran == [0, 3]


def test_another_number_of_partitions_waits_until_it_is_bound(
    engine: Engine, made: Tables, with_ledger: Settings, store: Store, client: redis.Redis
) -> None:
    with closing(LedgerEngine(with_ledger)) as ledger_engine:
        one = LedgerHarness(engine, made, store, place=place_of(with_ledger, ledger_engine.url))
        for id in IDS:
            one.insert(id, 3_600_000)
        one.settle_down()
        client.flushall()
        with Bridge(with_ledger.url) as bridge:
            bridge.create_partitions(COUNT)
            every = ledger_engine.all_partitions(Partitions(store.client, prefix="expirebridge"))
            for each in (every[0], every[-1]):  # one that was bound, and a new one
                with pytest.raises(LedgerUnsuitable, match="another number of partitions"):
                    finish(each.relay.carry())
            for each in every:
                each.rebuild()
            for each in every:
                each.relay_once()
            assert {id for id in IDS if bridge.get(id) is None} == set()
    assert slots_of(one) == {id: LAYOUT.partition_of(id) for id in IDS}
    assert sorted(passes_of(one)) == list(range(COUNT))
