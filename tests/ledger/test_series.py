"""Series of the ledger: they and their watermarks are in SQL, and survive Redis."""

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest
import redis
from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from expirebridge import Bridge, Change, State
from expirebridge.errors import InvalidTask
from expirebridge.hooks import End
from expirebridge.ledger import Ledger, Tables
from expirebridge.ledger.binding import place_of
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.rows import Status
from expirebridge.ledger.series_ticks import NEVER, make_ticks
from expirebridge.series.values import SeriesOutcome
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking
from expirebridge.task.calls.claiming import Settlement
from tests.kit.ledgers import LedgerHarness
from tests.kit.steps import reschedule, settle, state_of
from tests.kit.witness import Witness, listening

HOUR = 3_600_000


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store)


def series_of(harness: LedgerHarness) -> Any:
    with harness.engine.connect() as connection:
        return connection.execute(select(harness.made.series)).first()


def turn_back(harness: LedgerHarness, ms: int) -> None:
    """Let the series and its waiting tick, which was not relayed yet, be so much older."""
    series, task = harness.made.series, harness.made.task
    [tick] = harness.all_rows()
    options = json.loads(tick.options)
    options["tick"] = " ".join(str(int(at) - ms) for at in options["tick"].split())
    at = tick.at_ms - ms
    with harness.engine.begin() as connection:
        connection.execute(
            update(series).values(
                made=series.c.made - ms, tick=series.c.tick - ms, due=series.c.due - ms
            )
        )
        connection.execute(
            update(task).values(id=f"nightly@{at}", at_ms=at, options=json.dumps(options))
        )


def claim(store: Store, token: str = "t") -> list[str]:
    call = claiming.claim(token, Settings(), places=100, idle=True, gate=0)
    return [task.id for task in store.run(call).tasks]


def test_a_series_and_its_first_tick_are_of_the_transaction(
    harness: LedgerHarness, ledger: Ledger
) -> None:
    with Session(harness.engine) as session:
        ledger.schedule(session, "nightly", "mail.send", [1], every="1h", tags=["a"])
        session.rollback()
    assert (series_of(harness), harness.all_rows()) == (None, [])
    with Session(harness.engine) as session, session.begin():
        done = ledger.schedule(session, "nightly", "mail.send", [1], every="1h", tags=["a"])
    assert done.outcome is SeriesOutcome.CREATED
    series = series_of(harness)
    [tick] = harness.all_rows()
    assert tick.id == f"nightly@{series.tick}"
    assert tick.at_ms == series.due == series.made + HOUR
    harness.settle_down()
    assert state_of(harness.store, tick.id) is State.PENDING


def test_the_same_once_more_changes_nothing_and_a_change_replaces_its_tick(
    harness: LedgerHarness, ledger: Ledger
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
        same = ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    harness.settle_down()
    [tick] = harness.all_rows()
    first = tick.generation
    assert same.outcome is SeriesOutcome.UNCHANGED
    with harness.engine.begin() as connection:
        changed = ledger.schedule(connection, "nightly", "mail.send", [2], every="1h")
    assert changed.outcome is SeriesOutcome.CHANGED
    harness.settle_down()
    [tick] = harness.all_rows()
    task = harness.store.run(looking.get(tick.id))
    assert task is not None
    assert list(task.args) == [2]
    assert tick.generation > first
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [2], every="2h")
    harness.settle_down()
    first, second = harness.all_rows()
    assert (first.status, second.status) == (Status.CANCELLED, Status.WAITING)
    assert state_of(harness.store, first.id) is State.CANCELLED


def test_a_removed_series_has_no_more_ticks(harness: LedgerHarness, ledger: Ledger) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    harness.settle_down()
    with harness.engine.begin() as connection:
        assert ledger.unschedule(connection, "nightly") is Change.REMOVED
        assert ledger.unschedule(connection, "nightly") is Change.NOT_FOUND
    harness.settle_down()
    [tick] = harness.all_rows()
    assert tick.status == Status.CANCELLED
    assert make_ticks(harness.engine, harness.made, "default") == 0


def test_what_cannot_be_is_refused_before_anything_is_sent(
    harness: LedgerHarness, ledger: Ledger
) -> None:
    with harness.engine.begin() as connection, pytest.raises(InvalidTask):
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h", cron="@daily")
    assert series_of(harness) is None


def test_each_tick_is_made_once_and_begins_once(
    harness: LedgerHarness, ledger: Ledger, store: Store, client: redis.Redis
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(harness, HOUR)
    assert make_ticks(harness.engine, harness.made, "default") == 1
    assert make_ticks(harness.engine, harness.made, "default") == 0
    harness.settle_down()
    [first, second] = sorted(harness.all_rows(), key=lambda row: row.at_ms)
    assert second.at_ms == first.at_ms + HOUR
    before = {name: client.dump(name) or b"" for name in client.keys("*")}
    assert claim(store) == [first.id]
    settle(store, Settlement(first.id, "t", "succeeded"))
    harness.settle_down()
    client.flushall()  # an older copy, of before it ran
    for name, value in before.items():
        client.restore(name, 0, value)
    harness.settle_down()
    assert claim(store, "u") == []
    assert harness.status(first.id) is Status.SUCCEEDED
    assert state_of(store, second.id) is State.PENDING


def test_a_watermark_never_goes_back(
    harness: LedgerHarness, ledger: Ledger, client: redis.Redis
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(harness, HOUR)
    make_ticks(harness.engine, harness.made, "default")
    harness.settle_down()
    [first, second] = sorted(harness.all_rows(), key=lambda row: row.at_ms)
    claim(harness.store)
    settle(harness.store, Settlement(first.id, "t", "succeeded"))
    harness.settle_down()
    harness.prune(first.id)
    client.flushall()
    assert make_ticks(harness.engine, harness.made, "default") == 0
    harness.settle_down()
    assert [row.id for row in harness.all_rows()] == [second.id]
    assert claim(harness.store, "u") == []


@pytest.mark.parametrize(("missed", "runs"), [("latest", 1), ("skip", 0)])
def test_ticks_for_which_nobody_was_there(
    harness: LedgerHarness,
    ledger: Ledger,
    store: Store,
    client: redis.Redis,
    missed: Any,
    runs: int,
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h", missed=missed)
    turn_back(harness, 5 * HOUR)
    while make_ticks(harness.engine, harness.made, "default"):
        pass
    harness.settle_down()
    claimed = claim(store)
    assert len(claimed) == runs
    waiting = [row for row in harness.all_rows() if row.status == Status.WAITING]
    harness.settle_down()
    assert len(waiting) <= 3
    first = min(harness.all_rows(), key=lambda row: row.at_ms)
    assert state_of(store, first.id) is State.CANCELLED
    [coming] = [row for row in harness.all_rows() if row.at_ms > series_of(harness).tick - 1]
    assert state_of(store, coming.id) is State.PENDING


def test_ticks_do_not_overlap_also_after_a_loss(
    harness: LedgerHarness, ledger: Ledger, store: Store, client: redis.Redis
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    harness.settle_down()
    [tick] = harness.all_rows()
    assert client.hgetall("expirebridge:series:nightly") == {
        b"call": b"mail.send?[1]", b"overlap": b"skip",
    }  # fmt: skip
    assert client.pttl("expirebridge:series:nightly") > 24 * 7 * HOUR
    client.flushall()
    harness.settle_down()
    assert client.hget("expirebridge:series:nightly", "overlap") == b"skip"
    assert state_of(store, tick.id) is State.PENDING


def test_redis_shows_no_series(harness: LedgerHarness, ledger: Ledger, bridge: Bridge) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    harness.settle_down()
    assert bridge.get_series("nightly") is None
    assert bridge.list_series().series == []


def test_a_series_that_ends_makes_no_more(harness: LedgerHarness, ledger: Ledger) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
        connection.execute(harness.made.series.update().values(schedule="no JSON", due=0))
    assert make_ticks(harness.engine, harness.made, "default") == 0
    assert series_of(harness).due == NEVER


async def test_a_listener_makes_ticks_also_when_redis_is_emptied(
    engine: Engine, made: Tables, store: Store, url: str, client: redis.Redis, ledger: Ledger
) -> None:
    settings = Settings(url=url, ledger=engine.url.render_as_string(hide_password=False), lease=1.0)
    with closing(LedgerEngine(settings)) as ledger_engine:
        harness = LedgerHarness(engine, made, store, place=place_of(settings, ledger_engine.url))
    ran: list[int] = []
    witness = Witness()
    with engine.begin() as connection:
        ledger.schedule(connection, "often", "test.run", [1], every="1s", missed="latest")
    async with listening(settings, witness, run=into(ran)):
        await witness.until_ended(2, End.SUCCEEDED)
        await asyncio.to_thread(client.flushall)
        await witness.until_ended(5, End.SUCCEEDED)
    # What ended a moment before the loss, and was not written back, may be missed or run again.
    times = [row.at_ms for row in harness.all_rows()]
    assert {(at - times[0]) % 1000 for at in times} == {0}
    assert len({ended.task.id for ended in witness.ended(End.SUCCEEDED)}) >= 4


def steer(harness: LedgerHarness, ledger: Ledger, what: str, id: str = "nightly") -> Any:
    """Call one of the ledger's methods in a transaction of its own."""
    with harness.engine.begin() as connection:
        return getattr(ledger, what)(connection, id)


def statuses(harness: LedgerHarness) -> list[Status]:
    """How each tick stands, the first one first."""
    rows = sorted(harness.all_rows(), key=lambda row: row.at_ms)
    return [Status(row.status) for row in rows]


def lives(harness: LedgerHarness) -> list[int]:
    """Which life of its id each tick is, the first one first."""
    return [row.generation for row in sorted(harness.all_rows(), key=lambda row: row.at_ms)]


def test_a_paused_series_makes_no_ticks_until_it_is_resumed(
    harness: LedgerHarness, ledger: Ledger
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    assert steer(harness, ledger, "pause_series") is Change.PAUSED
    paused = steer(harness, ledger, "get_series")
    assert (paused.standing, paused.next, paused.due) == ("paused", None, None)
    assert steer(harness, ledger, "pause_series") is Change.PAUSED
    assert steer(harness, ledger, "get_series") == replace(paused, ended=ANY)
    harness.settle_down()
    assert statuses(harness) == [Status.CANCELLED]
    [cancelled] = lives(harness)
    assert make_ticks(harness.engine, harness.made, "default") == 0
    assert steer(harness, ledger, "resume_series") is Change.RESUMED
    assert steer(harness, ledger, "resume_series") is Change.RESUMED
    harness.settle_down()
    series = steer(harness, ledger, "get_series")
    assert (series.standing, series.next, series.paused) == ("", series.due, None)
    assert statuses(harness) == [Status.WAITING]
    [made_again] = lives(harness)
    assert made_again > cancelled
    assert state_of(harness.store, f"nightly@{series_of(harness).tick}") is State.PENDING


def test_a_pause_leaves_a_tick_that_is_due_and_resuming_never_makes_it_again(
    harness: LedgerHarness, ledger: Ledger, store: Store
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(harness, HOUR - 1500)  # due in 1.5 s: its successor is made already
    assert make_ticks(harness.engine, harness.made, "default") == 1
    before = lives(harness)
    steer(harness, ledger, "pause_series")
    steer(harness, ledger, "resume_series")
    harness.settle_down()
    assert statuses(harness) == [Status.WAITING, Status.WAITING]
    after = lives(harness)
    assert (after[0], after[1] > before[1]) == (before[0], True)


def test_what_runs_runs_to_its_end_although_its_series_is_paused_and_removed(
    harness: LedgerHarness, ledger: Ledger, store: Store
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(harness, HOUR)
    harness.settle_down()
    [id] = claim(store)
    steer(harness, ledger, "pause_series")
    assert steer(harness, ledger, "unschedule") is Change.REMOVED
    settle(store, Settlement(id, "t", "succeeded"))
    harness.settle_down()
    assert harness.status(id) is Status.SUCCEEDED


def test_a_change_lets_a_tick_run_once_more_that_began_before_the_databases_clock_had_it_due(
    harness: LedgerHarness, ledger: Ledger, store: Store
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    harness.settle_down()
    [tick] = harness.all_rows()
    reschedule(store, tick.id, 0)  # as a clock of Redis that is ahead would have it
    assert claim(store) == [tick.id]
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [2], every="1h")
    harness.settle_down()
    settle(store, Settlement(tick.id, "t", "succeeded"))
    harness.settle_down()
    task = store.run(looking.get(tick.id))
    assert task is not None
    assert (task.state, list(task.args)) == (State.PENDING, [2])
    assert harness.status(tick.id) is Status.WAITING


def test_scheduling_a_paused_series_does_not_resume_it(
    harness: LedgerHarness, ledger: Ledger
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    steer(harness, ledger, "pause_series")
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [2], every="2h")
    assert steer(harness, ledger, "get_series").standing == "paused"
    assert steer(harness, ledger, "get_series").args == [2]
    steer(harness, ledger, "resume_series")
    harness.settle_down()
    [_, tick] = sorted(harness.all_rows(), key=lambda row: row.at_ms)
    assert (tick.at_ms - series_of(harness).made, tick.params) == (2 * HOUR, "[2]")


def test_one_more_tick_is_made_now(harness: LedgerHarness, ledger: Ledger, store: Store) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h", retry=["1m"])
    before = series_of(harness)
    once, again = (steer(harness, ledger, "run_series") for _ in range(2))
    assert series_of(harness) == before
    assert once.id != again.id
    harness.settle_down()
    assert claim(store) == [once.id]
    assert state_of(store, again.id) is State.CANCELLED  # ticks do not overlap
    settle(store, Settlement(once.id, "t", "succeeded"))
    harness.settle_down()
    assert harness.status(once.id) is Status.SUCCEEDED
    series = steer(harness, ledger, "get_series")
    assert series.next is not None
    assert (series.last_id, series.state) == (again.id, State.CANCELLED)


def test_what_is_not_there_is_not_found(harness: LedgerHarness, ledger: Ledger) -> None:
    assert steer(harness, ledger, "get_series") is None
    assert steer(harness, ledger, "pause_series") is Change.NOT_FOUND
    assert steer(harness, ledger, "resume_series") is Change.NOT_FOUND
    assert steer(harness, ledger, "run_series") is None
    with harness.engine.begin() as connection:
        assert ledger.list_series(connection).series == []
        with pytest.raises(InvalidTask, match="cursor"):
            ledger.list_series(connection, cursor="x")
        with pytest.raises(InvalidTask, match="limit"):
            ledger.list_series(connection, limit=0)


def test_series_are_listed_by_their_next_tick_page_by_page(
    harness: LedgerHarness, ledger: Ledger
) -> None:
    other = Ledger(name="other")
    with harness.engine.begin() as connection:
        for hours in (3, 1, 2):
            ledger.schedule(connection, f"s{hours}", "mail.send", every=f"{hours}h", tags=["t"])
        ledger.schedule(connection, "paused", "mail.send", every="1m")
        ledger.pause_series(connection, "paused")
        other.schedule(connection, "other", "mail.send", every="1m")
    seen, cursor = [], None
    with harness.engine.begin() as connection:
        for _ in range(3):
            page = ledger.list_series(connection, limit=2, cursor=cursor)
            seen += page.series
            cursor = page.cursor
    assert [one.id for one in seen] == ["s1", "s2", "s3", "paused"]
    assert cursor is None
    assert all(one.ledger for one in seen)
    assert (seen[0].tags, str(seen[0].schedule)) == (("t",), "every 1h")


def test_how_the_last_tick_ended_is_told(
    harness: LedgerHarness, ledger: Ledger, store: Store
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    assert steer(harness, ledger, "get_series").last is None
    turn_back(harness, HOUR)
    make_ticks(harness.engine, harness.made, "default")
    harness.settle_down()
    [id] = claim(store)
    assert (steer(harness, ledger, "get_series").last_id, id) == (id, id)
    settle(store, Settlement(id, "t", "succeeded"))
    harness.settle_down()
    series = steer(harness, ledger, "get_series")
    assert (series.last_id, series.state) == (id, State.SUCCEEDED)
    assert series.last is not None
    assert series.ended is not None
    assert series.last < series.ended < series.next


def test_damaged_rows_are_shown(harness: LedgerHarness, ledger: Ledger) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
        damaged = {"schedule": "no JSON", "params": "[", "options": "[1]"}
        connection.execute(harness.made.series.update().values(**damaged))
    series = steer(harness, ledger, "get_series")
    assert (series.args, series.tags, series.schedule) == ([], (), None)
    assert series.standing == "its schedule cannot be read"


def test_a_bridge_leaves_series_of_a_ledger_alone(
    harness: LedgerHarness, ledger: Ledger, bridge: Bridge, client: redis.Redis
) -> None:
    with harness.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    harness.settle_down()
    before = client.hgetall("expirebridge:series:nightly")
    assert bridge.pause_series("nightly") is Change.NOT_FOUND
    assert bridge.resume_series("nightly") is Change.NOT_FOUND
    assert bridge.run_series("nightly") is None
    assert bridge.unschedule("nightly") is Change.NOT_FOUND
    assert client.hgetall("expirebridge:series:nightly") == before != {}
    assert client.zcard("expirebridge:series") == 0


def into(ran: list[int]) -> Callable[[int], None]:
    def run(number: int) -> None:
        ran.append(number)

    return run
