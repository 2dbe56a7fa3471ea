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
from expirebridge.ledger.addresses import place_of
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.series_ticks import NEVER, make_ticks
from expirebridge.model.row_state import Status
from expirebridge.series.state import SeriesOutcome
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.commands import claiming, producing
from expirebridge.store.commands.claiming import Settlement
from tests.kit.ledgers import Books
from tests.kit.steps import reschedule, settle, state_of
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.timeout(60)

HOUR = 3_600_000


@pytest.fixture
def books(engine: Engine, made: Tables, store: Store) -> Books:
    return Books(engine, made, store)


def series_of(books: Books) -> Any:
    with books.engine.connect() as connection:
        return connection.execute(select(books.made.series)).first()


def turn_back(books: Books, ms: int) -> None:
    """Let the series and its waiting tick, which was not relayed yet, be so much older."""
    series, task = books.made.series, books.made.task
    [tick] = books.all_rows()
    options = json.loads(tick.options)
    options["tick"] = " ".join(str(int(at) - ms) for at in options["tick"].split())
    at = tick.at_ms - ms
    with books.engine.begin() as connection:
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


def test_a_series_and_its_first_tick_are_of_the_transaction(books: Books, ledger: Ledger) -> None:
    with Session(books.engine) as session:
        ledger.schedule(session, "nightly", "mail.send", [1], every="1h", tags=["a"])
        session.rollback()
    assert (series_of(books), books.all_rows()) == (None, [])
    with Session(books.engine) as session, session.begin():
        done = ledger.schedule(session, "nightly", "mail.send", [1], every="1h", tags=["a"])
    assert done.outcome is SeriesOutcome.CREATED
    series = series_of(books)
    [tick] = books.all_rows()
    assert tick.id == f"nightly@{series.tick}"
    assert tick.at_ms == series.due == series.made + HOUR
    books.settle_down()
    assert state_of(books.store, tick.id) is State.PENDING


def test_the_same_once_more_changes_nothing_and_a_change_replaces_its_tick(
    books: Books, ledger: Ledger
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
        same = ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    books.settle_down()
    [tick] = books.all_rows()
    first = tick.generation
    assert same.outcome is SeriesOutcome.UNCHANGED
    with books.engine.begin() as connection:
        changed = ledger.schedule(connection, "nightly", "mail.send", [2], every="1h")
    assert changed.outcome is SeriesOutcome.CHANGED
    books.settle_down()
    [tick] = books.all_rows()
    task = books.store.run(producing.get(tick.id))
    assert task is not None
    assert list(task.args) == [2]
    assert tick.generation > first
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [2], every="2h")
    books.settle_down()
    first, second = books.all_rows()
    assert (first.status, second.status) == (Status.CANCELLED, Status.WAITING)
    assert state_of(books.store, first.id) is State.CANCELLED


def test_a_removed_series_has_no_more_ticks(books: Books, ledger: Ledger) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    books.settle_down()
    with books.engine.begin() as connection:
        assert ledger.unschedule(connection, "nightly") is Change.REMOVED
        assert ledger.unschedule(connection, "nightly") is Change.NOT_FOUND
    books.settle_down()
    [tick] = books.all_rows()
    assert tick.status == Status.CANCELLED
    assert make_ticks(books.engine, books.made, "default") == 0


def test_what_cannot_be_is_refused_before_anything_is_sent(books: Books, ledger: Ledger) -> None:
    with books.engine.begin() as connection, pytest.raises(InvalidTask):
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h", cron="@daily")
    assert series_of(books) is None


def test_each_tick_is_made_once_and_begins_once(
    books: Books, ledger: Ledger, store: Store, client: redis.Redis
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(books, HOUR)
    assert make_ticks(books.engine, books.made, "default") == 1
    assert make_ticks(books.engine, books.made, "default") == 0
    books.settle_down()
    [first, second] = sorted(books.all_rows(), key=lambda row: row.at_ms)
    assert second.at_ms == first.at_ms + HOUR
    before = {name: client.dump(name) or b"" for name in client.keys("*")}
    assert claim(store) == [first.id]
    settle(store, Settlement(first.id, "t", "succeeded"))
    books.settle_down()
    client.flushall()  # an older copy, of before it ran
    for name, value in before.items():
        client.restore(name, 0, value)
    books.settle_down()
    assert claim(store, "u") == []
    assert books.status(first.id) is Status.SUCCEEDED
    assert state_of(store, second.id) is State.PENDING


def test_a_watermark_never_goes_back(books: Books, ledger: Ledger, client: redis.Redis) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(books, HOUR)
    make_ticks(books.engine, books.made, "default")
    books.settle_down()
    [first, second] = sorted(books.all_rows(), key=lambda row: row.at_ms)
    claim(books.store)
    settle(books.store, Settlement(first.id, "t", "succeeded"))
    books.settle_down()
    books.prune(first.id)
    client.flushall()
    assert make_ticks(books.engine, books.made, "default") == 0
    books.settle_down()
    assert [row.id for row in books.all_rows()] == [second.id]
    assert claim(books.store, "u") == []


@pytest.mark.parametrize(("missed", "runs"), [("latest", 1), ("skip", 0)])
def test_ticks_for_which_nobody_was_there(
    books: Books, ledger: Ledger, store: Store, client: redis.Redis, missed: Any, runs: int
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h", missed=missed)
    turn_back(books, 5 * HOUR)
    while make_ticks(books.engine, books.made, "default"):
        pass
    books.settle_down()
    claimed = claim(store)
    assert len(claimed) == runs
    waiting = [row for row in books.all_rows() if row.status == Status.WAITING]
    books.settle_down()
    assert len(waiting) <= 3
    first = min(books.all_rows(), key=lambda row: row.at_ms)
    assert state_of(store, first.id) is State.CANCELLED
    [coming] = [row for row in books.all_rows() if row.at_ms > series_of(books).tick - 1]
    assert state_of(store, coming.id) is State.PENDING


def test_ticks_do_not_overlap_also_after_a_loss(
    books: Books, ledger: Ledger, store: Store, client: redis.Redis
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    books.settle_down()
    [tick] = books.all_rows()
    assert client.hgetall("expirebridge:series:nightly") == {
        b"call": b"mail.send?[1]", b"overlap": b"skip",
    }  # fmt: skip
    assert client.pttl("expirebridge:series:nightly") > 24 * 7 * HOUR
    client.flushall()
    books.settle_down()
    assert client.hget("expirebridge:series:nightly", "overlap") == b"skip"
    assert state_of(store, tick.id) is State.PENDING


def test_redis_shows_no_series(books: Books, ledger: Ledger, bridge: Bridge) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    books.settle_down()
    assert bridge.get_series("nightly") is None
    assert bridge.list_series().series == []


def test_a_series_that_ends_makes_no_more(books: Books, ledger: Ledger) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
        connection.execute(books.made.series.update().values(schedule="no JSON", due=0))
    assert make_ticks(books.engine, books.made, "default") == 0
    assert series_of(books).due == NEVER


async def test_a_listener_makes_ticks_also_when_redis_is_emptied(
    engine: Engine, made: Tables, store: Store, url: str, client: redis.Redis, ledger: Ledger
) -> None:
    settings = Settings(url=url, ledger=engine.url.render_as_string(hide_password=False), lease=1.0)
    with closing(LedgerEngine(settings)) as ledger_engine:
        books = Books(engine, made, store, place=place_of(settings, ledger_engine.url))
    ran: list[int] = []
    witness = Witness()
    with engine.begin() as connection:
        ledger.schedule(connection, "often", "test.run", [1], every="1s", missed="latest")
    async with listening(settings, witness, run=into(ran)):
        await witness.until_ended(2, End.SUCCEEDED)
        await asyncio.to_thread(client.flushall)
        await witness.until_ended(5, End.SUCCEEDED)
    # What ended a moment before the loss, and was not written back, may be missed or run again.
    times = [row.at_ms for row in books.all_rows()]
    assert {(at - times[0]) % 1000 for at in times} == {0}
    assert len({ended.task.id for ended in witness.ended(End.SUCCEEDED)}) >= 4


def steer(books: Books, ledger: Ledger, what: str, id: str = "nightly") -> Any:
    """Call one of the ledger's methods in a transaction of its own."""
    with books.engine.begin() as connection:
        return getattr(ledger, what)(connection, id)


def statuses(books: Books) -> list[Status]:
    """How each tick stands, the first one first."""
    rows = sorted(books.all_rows(), key=lambda row: row.at_ms)
    return [Status(row.status) for row in rows]


def lives(books: Books) -> list[int]:
    """Which life of its id each tick is, the first one first."""
    return [row.generation for row in sorted(books.all_rows(), key=lambda row: row.at_ms)]


def test_a_paused_series_makes_no_ticks_until_it_is_resumed(books: Books, ledger: Ledger) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    assert steer(books, ledger, "pause_series") is Change.PAUSED
    paused = steer(books, ledger, "get_series")
    assert (paused.standing, paused.next, paused.due) == ("paused", None, None)
    assert steer(books, ledger, "pause_series") is Change.PAUSED
    assert steer(books, ledger, "get_series") == replace(paused, ended=ANY)
    books.settle_down()
    assert statuses(books) == [Status.CANCELLED]
    [cancelled] = lives(books)
    assert make_ticks(books.engine, books.made, "default") == 0
    assert steer(books, ledger, "resume_series") is Change.RESUMED
    assert steer(books, ledger, "resume_series") is Change.RESUMED
    books.settle_down()
    series = steer(books, ledger, "get_series")
    assert (series.standing, series.next, series.paused) == ("", series.due, None)
    assert statuses(books) == [Status.WAITING]
    [made_again] = lives(books)
    assert made_again > cancelled
    assert state_of(books.store, f"nightly@{series_of(books).tick}") is State.PENDING


def test_a_pause_leaves_a_tick_that_is_due_and_resuming_never_makes_it_again(
    books: Books, ledger: Ledger, store: Store
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(books, HOUR - 1500)  # due in 1.5 s: its successor is made already
    assert make_ticks(books.engine, books.made, "default") == 1
    before = lives(books)
    steer(books, ledger, "pause_series")
    steer(books, ledger, "resume_series")
    books.settle_down()
    assert statuses(books) == [Status.WAITING, Status.WAITING]
    after = lives(books)
    assert (after[0], after[1] > before[1]) == (before[0], True)


def test_what_runs_runs_to_its_end_although_its_series_is_paused_and_removed(
    books: Books, ledger: Ledger, store: Store
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    turn_back(books, HOUR)
    books.settle_down()
    [id] = claim(store)
    steer(books, ledger, "pause_series")
    assert steer(books, ledger, "unschedule") is Change.REMOVED
    settle(store, Settlement(id, "t", "succeeded"))
    books.settle_down()
    assert books.status(id) is Status.SUCCEEDED


def test_a_change_lets_a_tick_run_once_more_that_began_before_the_databases_clock_had_it_due(
    books: Books, ledger: Ledger, store: Store
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    books.settle_down()
    [tick] = books.all_rows()
    reschedule(store, tick.id, 0)  # as a clock of Redis that is ahead would have it
    assert claim(store) == [tick.id]
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [2], every="1h")
    books.settle_down()
    settle(store, Settlement(tick.id, "t", "succeeded"))
    books.settle_down()
    task = store.run(producing.get(tick.id))
    assert task is not None
    assert (task.state, list(task.args)) == (State.PENDING, [2])
    assert books.status(tick.id) is Status.WAITING


def test_scheduling_a_paused_series_does_not_resume_it(books: Books, ledger: Ledger) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    steer(books, ledger, "pause_series")
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [2], every="2h")
    assert steer(books, ledger, "get_series").standing == "paused"
    assert steer(books, ledger, "get_series").args == [2]
    steer(books, ledger, "resume_series")
    books.settle_down()
    [_, tick] = sorted(books.all_rows(), key=lambda row: row.at_ms)
    assert (tick.at_ms - series_of(books).made, tick.params) == (2 * HOUR, "[2]")


def test_one_more_tick_is_made_now(books: Books, ledger: Ledger, store: Store) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h", retry=["1m"])
    before = series_of(books)
    once, again = (steer(books, ledger, "run_series") for _ in range(2))
    assert series_of(books) == before
    assert once.id != again.id
    books.settle_down()
    assert claim(store) == [once.id]
    assert state_of(store, again.id) is State.CANCELLED  # ticks do not overlap
    settle(store, Settlement(once.id, "t", "succeeded"))
    books.settle_down()
    assert books.status(once.id) is Status.SUCCEEDED
    series = steer(books, ledger, "get_series")
    assert series.next is not None
    assert (series.last_id, series.state) == (again.id, State.CANCELLED)


def test_what_is_not_there_is_not_found(books: Books, ledger: Ledger) -> None:
    assert steer(books, ledger, "get_series") is None
    assert steer(books, ledger, "pause_series") is Change.NOT_FOUND
    assert steer(books, ledger, "resume_series") is Change.NOT_FOUND
    assert steer(books, ledger, "run_series") is None
    with books.engine.begin() as connection:
        assert ledger.list_series(connection).series == []
        with pytest.raises(InvalidTask, match="cursor"):
            ledger.list_series(connection, cursor="x")
        with pytest.raises(InvalidTask, match="limit"):
            ledger.list_series(connection, limit=0)


def test_series_are_listed_by_their_next_tick_page_by_page(books: Books, ledger: Ledger) -> None:
    other = Ledger(name="other")
    with books.engine.begin() as connection:
        for hours in (3, 1, 2):
            ledger.schedule(connection, f"s{hours}", "mail.send", every=f"{hours}h", tags=["t"])
        ledger.schedule(connection, "paused", "mail.send", every="1m")
        ledger.pause_series(connection, "paused")
        other.schedule(connection, "other", "mail.send", every="1m")
    seen, cursor = [], None
    with books.engine.begin() as connection:
        for _ in range(3):
            page = ledger.list_series(connection, limit=2, cursor=cursor)
            seen += page.series
            cursor = page.cursor
    assert [one.id for one in seen] == ["s1", "s2", "s3", "paused"]
    assert cursor is None
    assert all(one.ledger for one in seen)
    assert (seen[0].tags, str(seen[0].schedule)) == (("t",), "every 1h")


def test_how_the_last_tick_ended_is_told(books: Books, ledger: Ledger, store: Store) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    assert steer(books, ledger, "get_series").last is None
    turn_back(books, HOUR)
    make_ticks(books.engine, books.made, "default")
    books.settle_down()
    [id] = claim(store)
    assert (steer(books, ledger, "get_series").last_id, id) == (id, id)
    settle(store, Settlement(id, "t", "succeeded"))
    books.settle_down()
    series = steer(books, ledger, "get_series")
    assert (series.last_id, series.state) == (id, State.SUCCEEDED)
    assert series.last is not None
    assert series.ended is not None
    assert series.last < series.ended < series.next


def test_damaged_rows_are_shown(books: Books, ledger: Ledger) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
        damaged = {"schedule": "no JSON", "params": "[", "options": "[1]"}
        connection.execute(books.made.series.update().values(**damaged))
    series = steer(books, ledger, "get_series")
    assert (series.args, series.tags, series.schedule) == ([], (), None)
    assert series.standing == "its schedule cannot be read"


def test_a_bridge_leaves_series_of_a_ledger_alone(
    books: Books, ledger: Ledger, bridge: Bridge, client: redis.Redis
) -> None:
    with books.engine.begin() as connection:
        ledger.schedule(connection, "nightly", "mail.send", [1], every="1h")
    books.settle_down()
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
