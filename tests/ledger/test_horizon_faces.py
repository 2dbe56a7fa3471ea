"""What commands, doctor, metrics and dashboard say of rows that are kept back."""

import base64
import json
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import redis
from sqlalchemy import Engine, update
from typer.testing import CliRunner

from expirebridge import Bridge
from expirebridge.checks.finding import Level
from expirebridge.ledger import Ledger
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.checks import check_horizons
from expirebridge.ledger.figures import WaitingForIds
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.relay import WAITS_FOR_ID
from expirebridge.ledger.row_pages import RowKind
from expirebridge.ledger.sql_types import NowMs
from expirebridge.ledger.table_checks import check_ledger, check_sealed_rows
from expirebridge.observe.metrics import Metrics
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls.inspection import StoredCall
from expirebridge.task.explaining import clock
from expirebridge.task.task import from_ms
from tests.kit.invoked import app
from tests.kit.ledgers import LedgerHarness
from tests.kit.witness import Witness, listening
from tests.ledger.plans import filled, noted, rows_read

HOUR = 3_600_000
HORIZON = 3600.0


@pytest.fixture
def harness(harness: LedgerHarness) -> LedgerHarness:
    return with_horizon(harness, HORIZON)


def with_horizon(harness: LedgerHarness, horizon: float | None) -> LedgerHarness:
    return LedgerHarness(
        harness.engine, harness.made, harness.store, place=harness.place, horizon=horizon
    )


# Where the horizon is known


def test_redis_knows_the_horizon(harness: LedgerHarness, store: Store, client: redis.Redis) -> None:
    def known() -> int | None:
        return store.run(ledger_calls.read_ledger()).horizon

    assert known() is None
    harness.settle_down()
    assert known() == HOUR
    client.flushall()
    harness.settle_down()
    assert known() == HOUR
    with_horizon(harness, 7200.0).settle_down()
    assert known() == 2 * HOUR
    with_horizon(harness, None).settle_down()
    assert known() is None


def test_a_look_sends_the_horizon_only_if_redis_has_another(
    harness: LedgerHarness, client: redis.Redis
) -> None:
    def calls() -> int:
        found = client.info("commandstats")
        return int(found["cmdstat_evalsha"]["calls"])

    relay = harness.relay()
    relay.bind()
    before = calls()
    relay.bind()
    assert calls() == before + 1
    client.hset("expirebridge:ledger", "horizon", "soon")
    relay.bind()
    assert client.hget("expirebridge:ledger", "horizon") == b"3600000"
    assert calls() == before + 3


async def test_listeners_with_different_horizons_are_found(
    with_ledger: Settings, store: Store
) -> None:
    def settings(horizon: float | None) -> Settings:
        return Settings(url=with_ledger.url, ledger=with_ledger.ledger, ledger_horizon=horizon)

    def found() -> str:
        finding = store.run(check_horizons(30))
        return "" if finding is None else f"{finding.level} {finding.message}"

    assert found() == ""
    async with listening(settings(None), Witness()):
        assert found() == ""
        async with listening(settings(HORIZON), Witness()):
            assert found().startswith(f"{Level.WARNING} the listeners of the ledger have different")
            assert "none (" in found()
            assert "1h (" in found()
    async with listening(settings(HORIZON), Witness()):
        assert found() == "ok rows due in more than 1h stay in SQL until then"


# What is counted


def come_near(harness: LedgerHarness, id: str, ms: int) -> None:
    """Let so much time pass for a row until it is due in `ms`."""
    task = harness.made.task
    with harness.engine.begin() as connection:
        due = task.c.written + task.c.delay_ms
        moved = {"written": task.c.written - (due - NowMs()) + ms, "modified": 1}
        connection.execute(update(task).where(task.c.id == id).values(moved))


def looked_at(settings: Settings, store: Store) -> str:
    findings = check_ledger(settings, lambda: {0: store.run(ledger_calls.read_ledger())})
    return "\n".join(f"{one.level} {one.check}: {one}" for one in findings)


def test_rows_that_are_kept_back_are_no_backlog(
    harness: LedgerHarness, with_ledger: Settings, store: Store
) -> None:
    for id, hours in (("far", 2), ("farther", 9), ("farthest", 24 * 365)):
        harness.insert(id, hours * HOUR, modified=1)
    harness.settle_down()
    figures = LedgerInspector(with_ledger).figures({})
    assert (figures.to_relay, figures.oldest, figures.kept_back.count) == (0, 0, 3)
    assert figures.kept_back.first == due_of(harness, "far")
    assert figures.kept_back.last == due_of(harness, "farthest")
    assert looked_at(with_ledger, store).startswith("ok ledger: ")
    come_near(harness, "far", HOUR - 1000)
    figures = LedgerInspector(with_ledger).figures({})
    assert (figures.to_relay, figures.kept_back.count) == (1, 2)
    assert 1 <= figures.oldest < 30  # since it came near, however long it is there
    assert "ok ledger: " in looked_at(with_ledger, store)
    come_near(harness, "far", HOUR - 60_000)
    assert "warning ledger: 1 row waits to be carried" in looked_at(with_ledger, store)


def due_of(harness: LedgerHarness, id: str) -> datetime:
    row = harness.row(id)
    return from_ms(row.written + row.delay_ms)


def test_without_a_listener_that_has_a_horizon_all_rows_wait(
    harness: LedgerHarness, with_ledger: Settings, store: Store
) -> None:
    harness.insert("far", 2 * HOUR, modified=1)
    assert "1 row waits to be carried" in looked_at(with_ledger, store)
    harness.settle_down()
    assert looked_at(with_ledger, store).startswith("ok ledger: ")
    with_horizon(harness, 3 * HOUR / 1000).settle_down()
    assert harness.row("far").stamp > 0
    assert LedgerInspector(with_ledger).figures({}).reach.horizon == 3 * HOUR


def test_rows_that_wait_for_their_ids_are_counted(
    harness: LedgerHarness, with_ledger: Settings, store: Store, bridge: Bridge
) -> None:
    harness.insert("taken", 2 * HOUR)
    harness.settle_down()
    bridge.make_task("other.task", [], "1h", id="taken")
    come_near(harness, "taken", HOUR // 2)
    harness.settle_down()
    figures = LedgerInspector(with_ledger).figures({})
    assert (figures.to_relay, figures.oldest, figures.for_ids) == (
        0,
        0,
        WaitingForIds(count=1, example="taken"),
    )
    found = looked_at(with_ledger, store)
    assert found.startswith("warning ledger rows: 1 row waits until other tasks, which are not of")
    assert "such as 'taken'; expirebridge show taken" in found


def test_status_counts_what_is_kept_back(
    harness: LedgerHarness, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str:
        shown = harness.engine.url.render_as_string(hide_password=False)
        result = CliRunner().invoke(
            app, ["ledger", "status", *words], env={"EXPIREBRIDGE_LEDGER": shown},
            catch_exceptions=False,
        )  # fmt: skip
        return result.stdout

    assert "horizon" not in run()
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER_HORIZON", "2d")  # the listeners' counts
    for id, hours in (("near", 0), ("taken", 3), ("far", 30), ("farther", 40)):
        harness.insert(id, hours * HOUR, modified=1)
    harness.settle_down()
    bridge.make_task("other.task", [], "1h", id="taken")
    come_near(harness, "taken", HOUR // 2)
    harness.settle_down()
    found = json.loads(run("--json"))
    assert (found["to_relay"], found["horizon"], found["oldest"]) == (0, 3600, None)
    assert found["for_ids"] == {"count": 1, "example": "taken"}
    assert found["kept_back"] == {
        "count": 2,
        "first": due_of(harness, "far").isoformat(),
        "last": due_of(harness, "farther").isoformat(),
    }
    lines = run()
    near, last = due_of(harness, "far") - timedelta(hours=1), due_of(harness, "farther")
    assert re.search(r"^horizon +1h$", lines, re.MULTILINE)
    assert f"2, the first until {clock(near)}, the last due {clock(last)}" in lines
    assert re.search(r"^wait for ids +1, such as taken$", lines, re.MULTILINE)


def test_metrics_have_what_is_kept_back(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge
) -> None:
    counting = Metrics()
    counting.watch(with_ledger)
    for id in ("far", "taken"):
        harness.insert(id, 2 * HOUR)
    harness.settle_down()
    bridge.make_task("other.task", [], "1h", id="taken")
    come_near(harness, "taken", HOUR // 2)
    harness.settle_down()
    value = counting.registry.get_sample_value
    assert value("expirebridge_ledger_kept_back_rows") == 1
    assert value("expirebridge_ledger_rows", {"todo": "taken"}) == 1
    assert value("expirebridge_ledger_rows", {"todo": "relay"}) == 0
    assert value("expirebridge_ledger_oldest_row_seconds") == 0


# What the doctor says


@pytest.mark.parametrize(("minutes", "is_found"), [(14, False), (16, True), (-16, True)])
def test_clocks_that_differ_by_a_quarter_of_the_horizon_are_found(
    minutes: int, is_found: bool, harness: LedgerHarness, with_ledger: Settings, store: Store
) -> None:
    harness.settle_down()
    known = store.run(ledger_calls.read_ledger())
    known = known._replace(now=known.now + minutes * 60_000)
    found = "\n".join(map(str, check_ledger(with_ledger, lambda: {0: known})))
    # By the seconds that pass between two looks, it is less.
    assert bool(re.search("the clock of SQL is 1[56]m", found)) is is_found
    with_horizon(harness, None).settle_down()
    assert "clock" not in "\n".join(map(str, check_ledger(with_ledger, lambda: {0: known})))


KEYS = {name: base64.b64encode(bytes([at] * 32)).decode() for at, name in enumerate(["old", "new"])}


def test_keys_are_kept_until_the_last_sealed_row_is_due(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    def found(*names: str) -> list[str]:
        keys = " ".join(f"{name}:{KEYS[name]}" for name in names) or None
        settings = replace(with_ledger, keys=keys)
        return [f"{one.level} {one.message}" for one in check_sealed_rows(settings)]

    def make(id: str, key: str, hours: int) -> None:
        ledger = Ledger(harness.engine.url, keys=f"{key}:{KEYS[key]}")
        with harness.engine.begin() as connection:
            ledger.make_task(connection, "a.b", ["secret" * 20], f"{hours}h", id=id)

    harness.settle_down()
    harness.insert("plain", 90 * HOUR)
    make("near", "old", 0)
    assert found() == []
    for id, key, hours in (("a", "old", 3), ("b", "new", 5), ("c", "old", 30)):
        make(id, key, hours)
    needs = "rows that are kept back need key new until {}, key old until {}".format(
        clock(due_of(harness, "b")), clock(due_of(harness, "c"))
    )
    assert found("old", "new") == [f"ok {needs}"]
    assert found("new") == [f"warning {needs}; EXPIREBRIDGE_KEYS lacks old here"]


# Pages


def test_kept_back_rows_are_listed_as_they_come_near(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge
) -> None:
    for id, hours in (("later", 9), ("sooner", 2), ("taken", 3), ("unfit", 4)):
        harness.insert(id, hours * HOUR, **({"params": "no"} if id == "unfit" else {}))
    harness.settle_down()
    bridge.make_task("other.task", [], "1h", id="taken")
    come_near(harness, "taken", HOUR // 2)
    harness.settle_down()
    page = LedgerInspector(with_ledger).page
    kept = page(RowKind.KEPT_BACK).rows
    assert [(row.task.id, row.due) for row in kept] == [
        (id, due_of(harness, id)) for id in ("sooner", "unfit", "later")
    ]
    assert [row.near for row in kept] == [
        due_of(harness, id) - timedelta(hours=1) for id in ("sooner", "unfit", "later")
    ]
    assert kept[0].reason == "kept back in SQL until"
    assert kept[1].reason.startswith("it will be refused: args")
    [taken] = page(RowKind.TAKEN).rows
    assert (taken.task.id, taken.reason) == ("taken", WAITS_FOR_ID)
    assert page(RowKind.RELAY).rows == []


def test_a_task_says_whether_redis_has_had_it(harness: LedgerHarness, ledger: Ledger) -> None:
    for id, delay in (("near", 0), ("far", 2 * HOUR)):
        harness.insert(id, delay)
    harness.settle_down()
    with harness.engine.connect() as connection:
        near, far = (ledger.get(connection, id) for id in ("near", "far"))
    assert near is not None
    assert far is not None
    assert (near.relayed, far.relayed) == (True, False)
    assert far.due == due_of(harness, "far")


# What it costs


MANY = {"sqlite": 2_000, "postgresql": 20_000, "mariadb": 20_000}
"""A planner takes an index once there are so many rows."""


def test_figures_and_pages_read_few_of_many_far_rows(
    engine: Engine, harness: LedgerHarness, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 100
    for place in ("inspection.MOST", "row_pages.MOST_LISTED"):
        monkeypatch.setattr(f"expirebridge.ledger.{place}", most)
    harness.settle_down()
    rows = [
        {"id": f"t{n}", "func": "a.b", "params": "[1]", "delay_ms": 2 * HOUR + n}
        for n in range(MANY[engine.dialect.name])
    ]
    inspector = LedgerInspector(with_ledger)
    with filled(engine, harness.made.task, rows):
        harness.insert("near", 60_000)
        with noted(inspector._engine) as queries:
            assert inspector.figures({}).kept_back.count == most
            assert inspector.figures({}).to_relay == 1
            for kind in (RowKind.RELAY, RowKind.KEPT_BACK, RowKind.TAKEN):
                inspector.page(kind)
            inspector.sealed_until()
        with engine.connect() as connection:
            read = {query[0]: rows_read(connection, query) for query in queries}
    assert len(read) >= 7
    assert max(read.values()) < 10 * most, read


def test_far_rows_are_compared_and_those_due_later_are_only_counted(
    harness: LedgerHarness, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expirebridge.ledger.inspection.PAGE_ROWS", 2)
    for number in range(5):
        harness.insert(f"far{number}", (2 + number) * HOUR)
    harness.settle_down()
    inspector, calls = LedgerInspector(with_ledger), list[StoredCall]()
    assert inspector.add_calls(calls.append) == 0
    assert [call.id for call in calls] == [f"far{number}" for number in range(5)]
    calls.clear()
    assert inspector.add_calls(calls.append, due_within=3.5 * HORIZON) == 3
    assert [call.id for call in calls] == ["far0", "far1"]


def test_check_names_far_rows_that_cannot_be_tasks(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    harness.insert("far", 2 * HOUR)
    harness.insert("unfit", 2 * HOUR, params="no")
    harness.settle_down()
    assert [row.id for row in LedgerInspector(with_ledger).unfit_rows()] == ["unfit"]
