"""A million rows that are kept back cost nothing: no statement of the relay reads them.

The table also has rows that were relayed, in many batches, and rows that ended long ago.
"""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, create_engine, insert, text, update

from expirebridge.ledger import Tables, calls, inspection, row_pages
from expirebridge.ledger.backlog import horizon_ms
from expirebridge.ledger.binding import Met
from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.relay import finish
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.row_pages import RowKind
from expirebridge.ledger.rows import SyncState
from expirebridge.ledger.schema import create
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.partitions import PartitionLayout
from tests.kit.databases import Database
from tests.kit.ledgers import LedgerHarness
from tests.ledger.plans import noted, rows_read

pytestmark = [pytest.mark.rest, pytest.mark.timeout(900)]

DAY = 86400.0
MINUTE = 60_000
FAR, RELAYED, IN_A_BATCH, NEAR, OLD = 1_000_000, 50_000, 50, 300, 200
BATCHES = RELAYED // IN_A_BATCH
FEW = 2000
"""More than any of these statements has to read, and far fewer than are kept back."""
MOST = 400
LAYOUT = PartitionLayout("expirebridge", 16)
NUMBERS = {
    "postgresql": "generate_series(1, {count}) AS numbers (n)",
    "mariadb": "(SELECT seq AS n FROM seq_1_to_{count}) AS numbers",
    "sqlite": "(WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
    "WHERE n < {count}) SELECT n FROM numbers)",
}
OTHERS = {
    "relayed": (RELAYED, f"0, 1 + n % {BATCHES}, 0, 1, 31536000000 + n, 1"),
    "old": (OLD, "0, 1, 0, 10, 1, 1"),
}
"""How many, and of each todo, stamp, slot, status, due and modified."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_ROWS", 100)


@pytest.fixture(scope="module")
def full(shared_database: Database, made: Tables) -> Iterator[Engine]:
    """A database of its own, with all these rows."""
    engine = create_engine(shared_database.new_database())
    name = engine.dialect.name
    joined = "concat('{kind}-', n)" if name == "mariadb" else "'{kind}-' || n"

    def fill(kind: str, count: int, columns: str, values: str) -> str:
        rows = f"{joined.format(kind=kind)}, 'mail.send', '[1]', {values}"
        numbers = NUMBERS[name].format(count=count)
        columns = f"id, func, params, delay_ms{columns}"
        return f"INSERT INTO expirebridge_task ({columns}) SELECT {rows} FROM {numbers}"  # noqa: S608

    with engine.begin() as connection:
        create(connection, made)
        connection.execute(text(fill("far", FAR, "", "31536000000 + n")))
        more = ", todo, stamp, slot, status, due, modified"
        for kind, (count, values) in OTHERS.items():
            connection.execute(text(fill(kind, count, more, f"1, {values}")))
    with engine.begin() as connection:
        verb = "ANALYZE TABLE" if name == "mariadb" else "ANALYZE"
        connection.execute(text(f"{verb} {made.task.name}"))
    yield engine
    engine.dispose()


@pytest.fixture
def engine(full: Engine, made: Tables) -> Engine:
    """With rows that are near, and not relayed yet."""
    task = made.task
    with full.begin() as connection:
        connection.execute(made.passes.delete())
        ours = task.c.ledger == "default"
        connection.execute(task.delete().where(ours, task.c.id.between("near-", "near.")))
        lost = (ours, task.c.todo == SyncState.REBUILD)
        connection.execute(update(task).where(*lost).values(todo=SyncState.NOTHING))
        connection.execute(
            insert(task).values(func="mail.send", params="[1]", delay_ms=10 * MINUTE),
            [{"id": f"near-{n}", "ledger": "default"} for n in range(NEAR)],
        )
    return full


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store, horizon=DAY)


@pytest.fixture
def inspector(
    harness: LedgerHarness, engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch
) -> LedgerInspector:
    """It counts and lists at most 400 rows, so that what it reads beside is seen."""
    monkeypatch.setattr(inspection, "MOST", MOST)
    monkeypatch.setattr(row_pages, "MOST_LISTED", MOST)
    harness.rows.begin("nonce", Met(partitions=1, horizon=horizon_ms(DAY)).text)
    ledger = engine.url.render_as_string(hide_password=False)
    return LedgerInspector(Settings(url=url, ledger=ledger))


def looked_at(
    engine: Engine, act: Callable[[], object], *verbs: str, other: Engine | None = None
) -> dict[str, int]:
    """Of each statement of this act, how many rows it reads; `other` is the engine that it has."""
    with noted(other or engine, "SELECT", "UPDATE", "DELETE", "WITH") as statements:
        act()
    assert len(statements) >= 1
    found = {}
    for statement in statements:
        with engine.connect() as connection:
            found[statement[0]] = rows_read(connection, statement)
            connection.rollback()
    return found


def assert_few(read: dict[str, int]) -> None:
    assert max(read.values()) < FEW, read


def partitions(engine: Engine, made: Tables) -> list[RelayStore]:
    """The relays of a server of sixteen partitions, all bound."""
    found = [
        RelayStore(
            engine, made, name="default", layout=LAYOUT, partition=number, horizon=DAY
        )
        for number in range(LAYOUT.count)
    ]  # fmt: skip
    for each in found:
        each.begin("nonce", "{}")
    return found


def relayed_up_to(rows: RelayStore, made: Tables, engine: Engine) -> None:
    """Let the numbers be as after the batches that stamped the rows."""
    with engine.begin() as connection:
        connection.execute(update(made.passes).values(number=BATCHES, stamp=BATCHES))


def test_a_batch_reads_what_is_near(harness: LedgerHarness, engine: Engine) -> None:
    relay = harness.relay()
    finish(relay.carry())  # before it, nothing is known of batches
    assert_few(looked_at(engine, lambda: finish(relay.carry())))


def test_a_batch_that_passes_over_locks_reads_what_is_near(
    harness: LedgerHarness, engine: Engine
) -> None:
    relay = harness.relay()
    finish(relay.carry())
    harness.rows._met_locked = float("inf")
    read = looked_at(engine, lambda: finish(relay.carry()))
    assert engine.dialect.name == "sqlite" or any("SKIP LOCKED" in each for each in read)
    assert_few(read)


@pytest.mark.parametrize("is_left", [True, False])
def test_a_look_reads_little(
    harness: LedgerHarness, engine: Engine, made: Tables, is_left: bool
) -> None:
    harness.rows.begin("nonce", "{}")
    if not is_left:
        with engine.begin() as connection:
            near = made.task.c.id.between("near-", "near.")
            connection.execute(made.task.delete().where(made.task.c.ledger == "default", near))
    assert_few(looked_at(engine, harness.rows.read))
    state = harness.rows.read()
    assert state is not None
    assert state.waiting is is_left


def test_what_is_near_is_sorted_into_partitions(engine: Engine, made: Tables) -> None:
    rows = partitions(engine, made)
    assert_few(looked_at(engine, rows[0].read_all))
    assert rows[0].read_all()[0].unsorted
    assert_few(looked_at(engine, rows[0].sort))
    assert not rows[0].read_all()[0].unsorted
    state = rows[1].read()
    assert state is not None
    assert_few(looked_at(engine, lambda: rows[1].begin_batch(state, seen=0)))


@pytest.mark.parametrize("is_single", [True, False])
def test_what_a_server_lost_is_marked_by_an_index(
    harness: LedgerHarness, engine: Engine, made: Tables, is_single: bool
) -> None:
    rows = harness.rows if is_single else partitions(engine, made)[0]
    rows.begin("nonce", "{}")
    relayed_up_to(rows, made, engine)
    state = rows.read()
    assert state is not None
    read = looked_at(engine, lambda: rows.begin_batch(state, seen=BATCHES - 2))
    assert any(each.startswith("UPDATE expirebridge_task") for each in read)
    assert_few(read)
    with engine.connect() as connection:
        lost = connection.scalar(text("SELECT count(*) FROM expirebridge_task WHERE todo = 2"))
    assert lost == 2 * IN_A_BATCH


def test_rows_that_wait_for_their_ids_are_found_by_an_index(
    harness: LedgerHarness, engine: Engine, made: Tables
) -> None:
    with engine.begin() as connection:
        taken = made.task.c.id.in_([f"near-{n}" for n in range(3)])
        connection.execute(update(made.task).where(taken).values(todo=SyncState.TAKEN))
    assert_few(looked_at(engine, harness.rows.ask_for_ids_again))
    assert harness.row("near-2").todo == SyncState.RELAY


def test_retention_reads_what_has_ended(harness: LedgerHarness, engine: Engine) -> None:
    harness.settle_down()
    assert_few(looked_at(engine, lambda: harness.prune_old(DAY)))


def test_the_figures_read_what_is_near(inspector: LedgerInspector, engine: Engine) -> None:
    def ask() -> None:
        checkpoints: dict[int, RedisCheckpoint] = {}
        figures = inspector.figures(checkpoints)
        assert (figures.to_relay, figures.kept_back.count) == (NEAR, MOST)
        assert figures.kept_back.last is not None

    assert_few(looked_at(engine, ask, other=inspector._engine))


@pytest.mark.parametrize("kind", RowKind)
def test_a_page_of_rows_reads_little(
    inspector: LedgerInspector, engine: Engine, kind: RowKind
) -> None:
    read = looked_at(engine, lambda: inspector.page(kind), other=inspector._engine)
    assert max(read.values()) < FEW + 2 * row_pages.MOST_LOOKED_AT, read


def test_the_keys_of_sealed_rows_are_found_among_few(
    inspector: LedgerInspector, engine: Engine
) -> None:
    assert_few(looked_at(engine, inspector.sealed_until, other=inspector._engine))
