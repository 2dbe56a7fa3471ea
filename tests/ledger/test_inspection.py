"""What is said of a ledger: findings, figures for Prometheus, and hooks."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from expirebridge import Bridge, TaskExists
from expirebridge.checks.finding import Finding, Level
from expirebridge.errors import InvalidTask
from expirebridge.hooks import Direction, Event, Made, Making, NotMade, Passed
from expirebridge.ledger import Ledger, Tables
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.checks import check_dirty
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.row_pages import RowKind
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.ledger.sql_tables import VERSION
from expirebridge.ledger.sql_types import NowMs
from expirebridge.ledger.table_checks import check_ledger
from expirebridge.observe.metrics import Metrics
from expirebridge.observe.tracing import Tracing
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.task import Outcome
from tests.kit.invoked import app
from tests.kit.ledgers import LedgerHarness
from tests.ledger.plans import filled, noted, rows_read

HOUR = 3_600_000
Look = Callable[[], list[Finding]]


@pytest.fixture
def look(with_ledger: Settings, store: Store) -> Look:
    return lambda: check_ledger(
        with_ledger, lambda: {0: store.run(ledger_calls.read_ledger())}, writes=True
    )


def said(findings: list[Finding]) -> str:
    return "\n".join(f"{one.level} {one}" for one in findings)


# Findings


def test_a_ledger_that_is_kept_up_with_is_fine(harness: LedgerHarness, look: Look) -> None:
    assert said(look()) == "ok rows are carried; pass 0"
    harness.insert("a", HOUR)
    harness.settle_down()
    assert said(look()) == "ok rows are carried; pass 1"


def test_rows_that_nobody_carries_are_found(harness: LedgerHarness, look: Look) -> None:
    harness.insert("young", HOUR)
    assert look()[0].level is Level.OK
    for id in "ab":
        harness.insert(id, HOUR, modified=1)
    found = said(look())
    assert found.startswith("warning 3 rows wait to be carried to Redis, the first for ")
    assert "start a listener with this ledger" in found


def test_a_changed_row_is_not_taken_for_an_old_one(harness: LedgerHarness, look: Look) -> None:
    harness.insert("a", HOUR, modified=1)
    harness.settle_down()
    harness.cancel("a")  # an UPDATE by hand leaves `modified` alone
    assert look()[0].level is Level.OK


def test_what_redis_lost_is_found(harness: LedgerHarness, look: Look, client: redis.Redis) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    client.flushall()
    assert "Redis has lost something: 0 rows wait" in said(look())
    with harness.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE expirebridge_task SET todo = 2")
    assert "Redis has lost something: 1 row waits" in said(look())
    harness.settle_down()
    assert look()[0].level is Level.OK


def test_refused_rows_are_found_for_a_day(harness: LedgerHarness, look: Look) -> None:
    for id in "ab":
        harness.insert(id, params="no JSON", modified=1)
    harness.settle_down()
    assert harness.row("a").message.startswith("refused: args")
    assert "warning 2 rows were refused within a day; SELECT id" in said(look())
    harness.age("a", "b")
    assert look()[0].level is Level.OK


def test_old_failures_cost_nothing(
    engine: Engine, made: Tables, with_ledger: Settings, look: Look
) -> None:
    inspector = LedgerInspector(with_ledger)
    rows = [
        {"id": f"t{n}", "func": "a.b", "params": "[1]", "delay_ms": HOUR, "modified": n,
         "todo": SyncState.NOTHING, "status": Status.FAILED, "message": "refused: x"}
        for n in range(20_000)
    ]  # fmt: skip
    with filled(engine, made.task, rows):
        with noted(inspector._engine) as queries:
            assert inspector.figures({}).refused == 0
        with engine.begin() as connection:
            read = {query[0]: rows_read(connection, query) for query in queries}
            some = made.task.c.id.in_(["t7", "t11"])
            connection.execute(update(made.task).where(some).values(modified=NowMs()))
        assert "2 rows were refused within a day" in said(look())
    assert len(queries) == 4
    assert max(read.values()) < 1000, read


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE expirebridge_schema SET version = 99", "are of version 99"),
        ("UPDATE expirebridge_schema SET version = 0", "are of version 0"),
        ("UPDATE expirebridge_pass SET nonce = 'x-elsewhere'", "another ledger"),
        ("UPDATE expirebridge_pass SET met = NULL", "another number of partitions"),
    ],
)
def test_what_cannot_be_used_is_an_error(
    harness: LedgerHarness, look: Look, statement: str, message: str
) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    try:
        with harness.engine.begin() as connection:
            connection.exec_driver_sql(statement)
        assert said(look()).startswith("error ")
        assert message in said(look())
    finally:
        with harness.engine.begin() as connection:
            connection.execute(update(harness.made.schema).values(version=VERSION))


def test_another_ledgers_redis_is_an_error(
    harness: LedgerHarness, look: Look, client: redis.Redis
) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    client.hset("expirebridge:ledger", "number", 99)
    assert "error Redis has seen pass 99" in said(look())
    client.hset("expirebridge:ledger", "nonce", "x-here")
    assert "error Redis belongs to another ledger" in said(look())


def test_rows_that_do_not_learn_are_found(
    harness: LedgerHarness, store: Store, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> str:
        return said(store.run(check_dirty(30)))

    assert look() == ""  # there is no ledger
    harness.insert("a", HOUR)
    harness.settle_down()
    assert look().startswith("ok rows of the ledger know")
    client.zadd("expirebridge:dirty", {"a": 1})
    assert look().startswith("warning 1 row of the ledger does not know yet")
    client.zadd("expirebridge:dirty", {"a": 4e15, "b": 4e15, "c": 4e15})
    assert look().startswith("ok")
    monkeypatch.setattr("expirebridge.ledger.checks.MANY_DIRTY", 2)
    assert look().startswith("warning 3 rows")
    monkeypatch.setattr("expirebridge.ledger.checks.MOST_DIRTY", 2)
    assert look().startswith("error 3 rows")


def run(*words: str, settings: Settings, code: int) -> str:
    env = {"EXPIREBRIDGE_LEDGER": settings.ledger, "EXPIREBRIDGE_URL": settings.url}
    result = CliRunner().invoke(app, words, env=env, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_doctor_and_check_look_at_the_ledger(harness: LedgerHarness, with_ledger: Settings) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    report = json.loads(run("doctor", "--role", "producer", "--json", settings=with_ledger, code=0))
    found = {one["check"]: one["message"] for one in report["findings"]}
    assert found["ledger"] == "rows are carried; pass 1"
    assert found["write-back"].startswith("rows of the ledger know")
    harness.insert("b", HOUR, modified=1)
    assert "1 row waits to be carried to Redis" in run("check", settings=with_ledger, code=1)
    assert "carried" not in run("check", "--here", settings=with_ledger, code=1)
    away = Settings(url=with_ledger.url, ledger="postgresql+psycopg://a:s3cret@127.0.0.1:1/d")
    shown = run("doctor", "--role", "producer", settings=away, code=5)
    assert "error    ledger" in shown
    assert "s3cret" not in shown


def test_doctor_counts_the_series_of_the_ledger(
    harness: LedgerHarness, with_ledger: Settings, ledger: Ledger, url: str, bridge: Bridge
) -> None:
    def found() -> dict[str, str]:
        report = json.loads(
            run("doctor", "--role", "producer", "--json", settings=with_ledger, code=0)
        )
        return {one["check"]: one["message"] for one in report["findings"]}

    assert "ledger series" not in found()
    bridge.schedule("a", "mail.send", every="1h")
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "b", "mail.send", every="1h")
        ledger.schedule(connection, "c", "mail.send", every="1h")
    both = found()
    assert both["series"] == "1 series has its next tick"
    assert both["ledger series"] == "2 series have their ticks"
    with harness.engine.begin() as connection:
        connection.execute(update(harness.made.series).values(due=1))
    assert found()["ledger series"] == "the next tick was not made in time of b, c"
    with harness.engine.begin() as connection:
        connection.execute(update(harness.made.series).values(schedule="?"))
    report = json.loads(run("doctor", "--role", "producer", "--json", settings=with_ledger, code=5))
    assert report["findings"][-1]["message"].startswith("the schedule of b, c cannot be read")


# Metrics


def samples_of(counting: Metrics) -> dict[str, float]:
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in counting.registry.collect()
        for sample in family.samples
        if sample.name.startswith("expirebridge_ledger_")
    }


def test_the_ledger_is_measured(
    harness: LedgerHarness, with_ledger: Settings, client: redis.Redis
) -> None:
    counting = Metrics()
    counting.watch(with_ledger)
    harness.insert("old", HOUR, modified=1)
    harness.insert("lost", HOUR, todo=2)
    client.zadd("expirebridge:dirty", {"a": 1})
    found = samples_of(counting)
    assert found["expirebridge_ledger_up"] == 1
    assert found["expirebridge_ledger_rows relay"] == 1
    assert found["expirebridge_ledger_rows rebuild"] == 1
    assert found["expirebridge_ledger_oldest_row_seconds"] > 1e9
    assert found["expirebridge_ledger_dirty_tasks"] == 1
    assert found["expirebridge_ledger_oldest_dirty_seconds"] > 1e9


def test_a_database_that_is_away_is_measured_as_such(with_ledger: Settings) -> None:
    counting = Metrics()
    counting.watch(Settings(url=with_ledger.url, ledger="postgresql+psycopg://a@127.0.0.1:1/d"))
    assert samples_of(counting)["expirebridge_ledger_up"] == 0


def test_passes_are_told(harness: LedgerHarness, client: redis.Redis) -> None:
    relay, counting = harness.relay(), Metrics()
    harness.insert("a", HOUR)
    harness.insert("b", params="no")
    for _ in relay.carry():
        pass
    client.flushall()
    for _ in relay.carry():
        pass
    first, second = relay.passed
    assert first == Passed(direction=Direction.OUT, rows=2, refused=1)
    assert (second.rows, second.rebuilt) == (2, 2)
    for passed in relay.passed:
        counting(passed)
    found = samples_of(counting)
    assert found["expirebridge_ledger_passes_total out"] == 2
    assert found["expirebridge_ledger_rebuilt_rows_total"] == 2
    assert found["expirebridge_ledger_refused_rows_total"] == 1


# Hooks


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def ledger(engine: Engine, told: list[Event]) -> Ledger:
    return Ledger(engine.url, hooks=[told.append])


def test_hooks_hear_of_each_task(engine: Engine, ledger: Ledger, told: list[Event]) -> None:
    with Session(engine) as session, session.begin():
        ledger.make_task(session, "mail.send", [1], 60, id="a", tags=["x"])
        making, made = told
        assert isinstance(making, Making)
        assert isinstance(made, Made)
        assert (making.id, making.func) == ("a", "mail.send")
        assert (made.task.id, made.task.args, made.task.tags) == ("a", [1], ("x",))
        assert made.task.outcome is Outcome.CREATED
        told.clear()
        with pytest.raises(TaskExists):
            ledger.make_task(session, "mail.send", [1], 60, id="a")
        assert [type(one) for one in told] == [Making, NotMade]
        told.clear()
        with pytest.raises(InvalidTask):
            ledger.make_task(session, "mail.send", [1], 60, ext="")
        assert told == []
        tasks: list[dict[str, Any]] = [
            {"func": "mail.send", "delay": 60}, {"func": "mail.send", "delay": 60, "id": "a"}
        ]  # fmt: skip
        ledger.make_tasks(session, tasks)
        outcomes = [one.task.outcome for one in told if isinstance(one, Made)]
        assert outcomes == [Outcome.CREATED, Outcome.REJECTED]


def test_a_task_of_the_ledger_has_its_place_in_a_trace(
    engine: Engine, harness: LedgerHarness, client: redis.Redis
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ledger = Ledger(engine.url, hooks=[Tracing(provider)])
    with Session(engine) as session, session.begin():
        ledger.make_task(session, "mail.send", [1], 60, id="one")
        ledger.make_tasks(
            session, [{"func": "mail.send", "delay": 60, "id": "many", "tags": ["x"]}]
        )
    harness.settle_down()
    spans = {str((span.attributes or {})["messaging.message.id"]): span for span in
             exporter.get_finished_spans()}  # fmt: skip
    for id in ("one", "many"):
        context = spans[id].context
        assert context is not None
        expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
        found: Any = client.hget(f"expirebridge:task:{id}", "trace")
        assert found.decode().startswith(expected)
    assert client.hget("expirebridge:task:many", "tags") == b"x"


def test_rows_are_found_by_what_the_application_calls_them(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    harness.insert("a", HOUR, ext_string="ann")
    harness.insert("b", params="no", ext_string="ann")
    harness.insert("c", HOUR)
    harness.settle_down()
    inspector = LedgerInspector(with_ledger)
    assert sorted(task.id for task in inspector.find("ann")) == ["a", "b"]
    [refused] = inspector.page(RowKind.REFUSED).rows
    assert refused.task.id == "b"
