"""Histories drawn at random, and the same without one of the protocol's rules."""

from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine

from expirebridge.ledger import Tables
from expirebridge.ledger.relay import finish
from expirebridge.ledger.schema import create
from expirebridge.ledger.tables import Status
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import Settlement
from expirebridge.store.calls import ledger as ledger_calls
from expirebridge.store.store import Store
from tests.kit.ledgers import Books
from tests.kit.steps import settle
from tests.ledger.model import Model
from tests.ledger.planted import planted
from tests.ledger.world import World

STEPS = 250
CAUGHT = {
    "reserve": 7, "cas": 19, "fence": 10, "gate": 0, "mark": 1, "tombstone": 10, "row": 22,
}  # fmt: skip
"""For each rule a history that ends badly without it, found by trying."""


@pytest.fixture(scope="module")
def memory(made: Tables) -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        create(connection, made)
    yield engine
    engine.dispose()


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes carry three rows, so that a history needs several."""
    monkeypatch.setattr(ledger_calls, "MAX_ROWS", 3)


def emptied(engine: Engine, made: Tables, store: Store, client: redis.Redis) -> Books:
    client.flushall()
    with engine.begin() as connection:
        connection.execute(made.task.delete())
        connection.execute(made.passes.delete())
    return Books(engine, made, store)


@pytest.mark.usefixtures("few_rows")
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture],
    print_blob=False,
)  # fmt: skip
@given(seed=st.integers(0, 2**32))
def test_nothing_is_lost_and_nothing_done_starts_again(
    memory: Engine, made: Tables, store: Store, client: redis.Redis, seed: int
) -> None:
    books = emptied(memory, made, store, client)
    assert World(books, client, seed, model=Model()).live(STEPS) == []


@pytest.mark.usefixtures("few_rows")
def test_on_each_database(books: Books, client: redis.Redis) -> None:
    assert World(books, client, 5, model=Model()).live(120) == []


@pytest.mark.usefixtures("few_rows")
def test_the_model_differs_from_what_lacks_a_rule(
    memory: Engine, made: Tables, store: Store, client: redis.Redis
) -> None:
    books = emptied(memory, made, store, client)
    with planted("revision"), pytest.raises(AssertionError):
        World(books, client, 0, model=Model()).live(STEPS)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("rule", CAUGHT)
def test_without_a_rule_a_history_ends_badly(
    memory: Engine, made: Tables, store: Store, client: redis.Redis, rule: str
) -> None:
    seed = CAUGHT[rule]
    assert World(emptied(memory, made, store, client), client, seed).live(STEPS) == []
    with planted(rule):
        world = World(emptied(memory, made, store, client), client, seed, frozenset({rule}))
        assert world.live(STEPS) != []


@pytest.fixture
def books(engine: Engine, made: Tables, store: Store) -> Books:
    return Books(engine, made, store)


def lose_while_written_back(books: Books, client: redis.Redis) -> int | None:
    """A task ends; while its row learns that, the server loses it. Returns the gate's number."""
    store, world = books.store, World(books, client, 0)
    books.insert("a")
    books.settle_down()
    before = world.snapshot()
    store.run(calls.claim("t", Settings(), room=1, idle=True, gate=0))
    settle(store, Settlement("a", "t", "succeeded"))
    steps = books.relay().bring_back()
    while next(steps) != "dirty read":
        pass
    world.restore(before)
    finish(steps)
    assert books.status("a") is Status.SUCCEEDED
    return world._gate(0)


def test_what_the_server_lost_while_it_was_written_back_closes_the_gate(
    books: Books, client: redis.Redis, store: Store
) -> None:
    assert lose_while_written_back(books, client) is None
    books.settle_down()
    assert store.run(calls.claim("u", Settings(), room=1, idle=True, gate=0)).tasks == []


def test_without_the_look_at_dirty_it_would_stay_open(books: Books, client: redis.Redis) -> None:
    with planted("still"):
        assert lose_while_written_back(books, client) is not None


def revived_by_an_older_row(books: Books, store: Store) -> bool:
    """A pass stalls with a row; meanwhile its task ends. Whether the row would begin it again."""
    books.insert("a")
    books.settle_down()
    store.run(calls.claim("t", Settings(), room=1, idle=True, gate=0))
    settle(store, Settlement("a", "t", "succeeded"))
    books.change("a", ext_string="x")
    finish(books.relay().carry())
    return bool(store.run(calls.claim("u", Settings(), room=1, idle=True, gate=0)).tasks)


def test_what_ended_is_not_begun_again_by_its_row(books: Books, store: Store) -> None:
    assert not revived_by_an_older_row(books, store)


def test_without_the_revision_it_would_be(books: Books, store: Store) -> None:
    with planted("revision"):
        assert revived_by_an_older_row(books, store)
