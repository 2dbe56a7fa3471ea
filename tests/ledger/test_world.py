"""Histories drawn at random, and the same without one of the protocol's rules."""

from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, MetaData, create_engine

from expirebridge.ledger import Tables, lost_rows, tables
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.page_size import PageSize
from expirebridge.ledger.relay import finish
from expirebridge.ledger.rows import Status
from expirebridge.ledger.schema import create
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from expirebridge.task.calls.claiming import Settlement
from tests.kit.ledgers import LedgerHarness, restore, snapshot
from tests.kit.servers import PART
from tests.kit.steps import settle
from tests.ledger.model import Model
from tests.ledger.planted import planted
from tests.ledger.world import HORIZON, World

STEPS = 250
CAUGHT = {"cas": 6, "fence": 73, "gate": 0, "mark": 2, "tombstone": 15}
"""For each rule a history that ends badly without it, found by trying. A listener does not ask how
a task stands in its row, which would hide that."""
ASKED = {
    "reserve": 0, "row": 0, "wish": 7, "wish of an older life": 1, "erased": 1, "re-armed": 4,
    "one run": 14, "write-back": 2, "completed": 7,
}  # fmt: skip
"""The same of histories in which nothing is lost: the first of a dozen that differs."""
AT_THE_HORIZON = {
    "near": 0, "stamped": 1, "cancelled": 0, "rebound": 0,
}  # fmt: skip
"""The same of histories with a horizon."""


EARLY = {"early over a record": 0, "early after a loss": 2}
"""The same of histories in which rows are sent before their passes."""


@pytest.fixture(scope="module")
def memory(made: Tables) -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        create(connection, made)
    yield engine
    engine.dispose()


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes carry three rows, so that a history needs several; the gate waits for each row.

    What was locked is tried again at once.
    """
    monkeypatch.setattr(ledger_calls, "MAX_ROWS", 3)
    monkeypatch.setattr(PageSize, "note_interrupted", lambda _: None)  # the model's are of one size
    monkeypatch.setattr(ledger_calls, "MAX_STATES", 3)
    for name in ("FEW", "MARK_PAUSE", "MARK_REST"):
        monkeypatch.setattr(lost_rows, name, 0)


def emptied(
    engine: Engine, made: Tables, store: Store, client: redis.Redis, horizon: float | None = None
) -> LedgerHarness:
    client.flushall()
    with engine.begin() as connection:
        connection.execute(made.task.delete())
        connection.execute(made.passes.delete())
    return LedgerHarness(engine, made, store, horizon=horizon)


@pytest.mark.usefixtures("few_rows")
@settings(
    max_examples=1 if PART == "quick" else 4, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    print_blob=False,
)  # fmt: skip
@given(seed=st.integers(0, 2**32), is_calm=st.booleans(), sends_early=st.booleans())
def test_nothing_is_lost_and_nothing_done_starts_again(
    memory: Engine, made: Tables, store: Store, client: redis.Redis, seed: int, is_calm: bool,
    sends_early: bool,
) -> None:  # fmt: skip
    harness = emptied(memory, made, store, client)
    world = World(
        harness, client, seed, model=Model(), is_calm=is_calm, sends_early=sends_early
    )  # fmt: skip
    assert world.live(STEPS) == []


@pytest.mark.rest
@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("is_calm", [False, True])
@pytest.mark.parametrize("sends_early", [False, True])
def test_on_each_database(
    harness: LedgerHarness, client: redis.Redis, is_calm: bool, sends_early: bool
) -> None:
    world = World(harness, client, 5, model=Model(), is_calm=is_calm, sends_early=sends_early)
    assert world.live(120) == []


@pytest.mark.rest
@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("rule", CAUGHT)
def test_without_a_rule_a_history_ends_badly(
    memory: Engine, made: Tables, store: Store, client: redis.Redis, rule: str
) -> None:
    def live(*out: str) -> list[str]:
        harness = emptied(memory, made, store, client)
        return World(harness, client, CAUGHT[rule], frozenset({"status", *out})).live(STEPS)

    assert live() == []
    with planted(rule):
        assert live(rule) != []


@pytest.mark.rest
@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("rule", ASKED)
def test_without_a_rule_about_wishes_a_calm_history_differs_from_the_model(
    memory: Engine, made: Tables, store: Store, client: redis.Redis, rule: str
) -> None:
    def live(*out: str) -> list[str]:
        harness = emptied(memory, made, store, client)
        world = World(harness, client, ASKED[rule], frozenset(out), Model(), is_calm=True)
        try:
            return world.live(STEPS)
        except AssertionError as differs:
            return [f"differs: {differs}"]

    assert live() == []
    with planted(rule):
        assert live(rule) != []


@pytest.mark.rest
@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("rule", EARLY)
def test_without_a_rule_about_early_sends_a_history_differs_from_the_model(
    memory: Engine, made: Tables, store: Store, client: redis.Redis, rule: str
) -> None:
    def live() -> list[str]:
        harness = emptied(memory, made, store, client)
        world = World(harness, client, EARLY[rule], model=Model(), sends_early=True)
        try:
            return world.live(STEPS)
        except AssertionError as differs:
            return [f"differs: {differs}"]

    assert live() == []
    with planted(rule):
        assert live() != []


@pytest.mark.usefixtures("few_rows")
@settings(
    max_examples=1 if PART == "quick" else 4, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    print_blob=False,
)  # fmt: skip
@given(seed=st.integers(0, 2**32), is_calm=st.booleans())
def test_what_is_kept_back_comes_in_time(
    memory: Engine, made: Tables, store: Store, client: redis.Redis, seed: int, is_calm: bool
) -> None:
    harness = emptied(memory, made, store, client, HORIZON)
    assert World(harness, client, seed, model=Model(), is_calm=is_calm).live(STEPS) == []


@pytest.mark.rest
@pytest.mark.usefixtures("few_rows")
def test_what_is_kept_back_comes_in_time_with_each_database(
    engine: Engine, made: Tables, store: Store, client: redis.Redis
) -> None:
    harness = LedgerHarness(engine, made, store, horizon=HORIZON)
    assert World(harness, client, 5, model=Model()).live(120) == []


@pytest.mark.rest
@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("rule", AT_THE_HORIZON)
def test_without_a_rule_of_the_horizon_a_history_differs_from_the_model(
    store: Store, client: redis.Redis, rule: str
) -> None:
    def live(*out: str) -> list[str]:
        made, memory = tables(MetaData()), create_engine("sqlite://")
        with memory.begin() as connection:
            create(connection, made)
        harness = emptied(memory, made, store, client, HORIZON)
        try:
            return World(harness, client, AT_THE_HORIZON[rule], frozenset(out), Model()).live(STEPS)
        except AssertionError as differs:
            return [f"differs: {differs}"]
        finally:
            memory.dispose()

    assert live() == []
    with planted(rule):
        assert live(rule) != []


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store)


def lose_while_written_back(harness: LedgerHarness, client: redis.Redis) -> int | None:
    """A task ends; while its row learns that, the server loses it. Returns the gate's number."""
    store, world = harness.store, World(harness, client, 0)
    harness.insert("a")
    harness.settle_down()
    before = snapshot(client)
    store.run(claiming.claim("t", Settings(), places=1, idle=True, gate=0))
    settle(store, Settlement("a", "t", "succeeded"))
    steps = harness.relay().bring_back()
    while next(steps) != "dirty read":
        pass
    restore(client, before)
    finish(steps)
    assert harness.status("a") is Status.SUCCEEDED
    return world._gate(0)


def test_what_the_server_lost_while_it_was_written_back_closes_the_gate(
    harness: LedgerHarness, client: redis.Redis, store: Store
) -> None:
    assert lose_while_written_back(harness, client) is None
    harness.settle_down()
    assert store.run(claiming.claim("u", Settings(), places=1, idle=True, gate=0)).tasks == []


def test_without_the_look_at_dirty_it_would_stay_open(
    harness: LedgerHarness, client: redis.Redis
) -> None:
    with planted("still"):
        assert lose_while_written_back(harness, client) is not None


def revived_by_an_older_row(harness: LedgerHarness, store: Store) -> bool:
    """A pass stalls with a row; meanwhile its task ends. Whether the row would begin it again."""
    harness.insert("a")
    harness.settle_down()
    store.run(claiming.claim("t", Settings(), places=1, idle=True, gate=0))
    settle(store, Settlement("a", "t", "succeeded"))
    harness.change("a", ext_string="x")
    finish(harness.relay().carry())
    return bool(store.run(claiming.claim("u", Settings(), places=1, idle=True, gate=0)).tasks)


def test_what_ended_is_not_begun_again_by_its_row(harness: LedgerHarness, store: Store) -> None:
    assert not revived_by_an_older_row(harness, store)


def test_without_the_revision_it_would_be(harness: LedgerHarness, store: Store) -> None:
    with planted("revision"):
        assert revived_by_an_older_row(harness, store)
