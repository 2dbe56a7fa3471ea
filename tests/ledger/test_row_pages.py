"""The rows that people look at: each kind, a page at a time, and never a walk over all."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, insert, update

from expirebridge.errors import InvalidTask
from expirebridge.ledger import Tables, row_pages
from expirebridge.ledger.backlog import Reach
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.row_pages import PAGE_ROWS, RowKind, RowPage, read_page
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.ledger.series_ticks import NEVER
from expirebridge.ledger.sql_types import NowMs
from expirebridge.settings import Settings
from expirebridge.task.task import from_ms
from tests.kit.ledgers import LedgerHarness
from tests.ledger.plans import filled, noted, rows_read

pytestmark = pytest.mark.rest

HOUR = 3_600_000
MANY = 10_000
Look = Callable[[RowKind, str | None], RowPage]


@pytest.fixture
def look(with_ledger: Settings) -> Look:
    return LedgerInspector(with_ledger).page


def reasons(page: RowPage) -> dict[str, str]:
    return {row.task.id: row.reason for row in page.rows}


def test_each_row_is_listed_with_its_reason(harness: LedgerHarness, look: Look) -> None:
    harness.insert("bad", params="no JSON")
    harness.insert("dropped", HOUR)
    harness.insert("moved", HOUR)
    harness.settle_down()
    harness.cancel("dropped")
    harness.change("moved", due=None)
    harness.insert("new", at_ms=1_900_000_000_000)
    harness.insert("unfit", options="[]")
    harness.insert("lost", HOUR, todo=SyncState.REBUILD)
    carried = {"todo": SyncState.NOTHING, "at_ms": 1}
    future = 4_000_000_000_000
    harness.insert("due", **carried, due=1)
    harness.insert("early", **carried, due=future)
    harness.insert("paused", **carried, due=NEVER)
    harness.insert("retried", **carried, due=future, retry_times=1, message="boom")
    assert reasons(look(RowKind.RELAY, None)) == {
        "dropped": "to be cancelled",
        "moved": "changed",
        "new": "new",
        "unfit": "it will be refused: options: write one JSON object",
    }
    assert reasons(look(RowKind.REBUILD, None)) == {"lost": "Redis lost it"}
    assert reasons(look(RowKind.TIME, None)) == {
        "due": "due, or running",
        "early": "not due yet",
        "paused": "paused",
        "retried": "to be retried",
    }
    [refused] = look(RowKind.REFUSED, None).rows
    assert (refused.task.id, refused.reason[:5]) == ("bad", "args:")


def test_a_row_is_due_as_it_asks_until_redis_says(harness: LedgerHarness, look: Look) -> None:
    harness.insert("at", at_ms=1_900_000_000_000)
    harness.insert("in", HOUR)
    harness.insert("carried", at_ms=1, due=1_900_000_000_001)
    due = {row.task.id: row.due for row in look(RowKind.RELAY, None).rows}
    written = harness.row("in").written
    assert due == {
        "at": from_ms(1_900_000_000_000),
        "in": from_ms(written + HOUR),
        "carried": from_ms(1_900_000_000_001),
    }


def test_a_page_follows_another_and_none_is_left_out(
    harness: LedgerHarness, made: Tables, look: Look
) -> None:
    rows = [
        {"id": f"r{n:03}", "func": "a.b", "params": "[]", "delay_ms": HOUR, "todo": todo}
        for n, todo in enumerate([SyncState.RELAY, SyncState.NOTHING] * 120)
    ]
    # A database that knows how few there are sorts them, in another way for each page.
    with filled(harness.engine, made.task, rows):
        for kind in (RowKind.RELAY, RowKind.TIME):
            found, cursor, pages = list[str](), None, 0
            while pages == 0 or cursor is not None:
                page = look(kind, cursor)
                found += [row.task.id for row in page.rows]
                cursor, pages = page.cursor, pages + 1
            assert pages == 3
            assert len(found) == len(set(found)) == 120


def test_rows_of_another_ledger_are_not_listed(
    harness: LedgerHarness, made: Tables, look: Look
) -> None:
    values = {"id": "x", "func": "a.b", "params": "[]", "delay_ms": HOUR, "ledger": "other"}
    with harness.engine.begin() as connection:
        connection.execute(insert(made.task), [values])
    assert all(look(kind, None).rows == [] for kind in RowKind)


@pytest.mark.parametrize("kind", RowKind)
@pytest.mark.parametrize("cursor", ["x" * 200, "a\0b"])
def test_a_cursor_that_cannot_be_is_refused(look: Look, kind: RowKind, cursor: str) -> None:
    with pytest.raises(InvalidTask, match="cursor"):
        look(kind, cursor)


@pytest.mark.parametrize("cursor", ["-1", "10000", "99999", "1.5", "\u0661"])
def test_a_number_that_cannot_be_is_refused(look: Look, cursor: str) -> None:
    with pytest.raises(InvalidTask, match="cursor"):
        look(RowKind.RELAY, cursor)


# What a page costs


@pytest.fixture
def full(engine: Engine, made: Tables) -> Iterator[Engine]:
    """An engine whose table has many rows of each kind."""
    todos = {
        "relay": SyncState.RELAY, "kept-back": SyncState.RELAY, "taken": SyncState.TAKEN,
        "rebuild": SyncState.REBUILD,
    }  # fmt: skip
    kinds: list[dict[str, Any]] = [
        {"todo": todos.get(kind, SyncState.NOTHING),
         "status": Status.FAILED if kind in {"refused", "failed"} else Status.WAITING,
         "message": "refused: x" if kind == "refused" else "boom",
         "delay_ms": 9 * HOUR if kind == "kept-back" else HOUR}
        for kind in ("relay", "kept-back", "taken", "rebuild", "refused", "failed", "time")
    ]  # fmt: skip
    rows = [
        kinds[n % 7] | {"id": f"t{n:06}", "func": "a.b", "params": "[1]", "slot": None}
        for n in range(7 * MANY)
    ]
    with filled(engine, made.task, rows, modified=NowMs()):
        yield engine


def read_few(engine: Engine, made: Tables, kind: RowKind, cursor: str) -> RowPage:
    """Read a page, and see that none of its queries looks at more than a few rows."""
    with engine.connect() as connection, noted(engine) as queries:
        page = read_page(
            lambda query: list(connection.execute(query).mappings()),
            made.task, "default", kind, cursor, reach=Reach(horizon=2 * HOUR),
        )  # fmt: skip
    with engine.connect() as connection:
        read = {query[0]: rows_read(connection, query) for query in queries}
    assert read
    assert max(read.values()) < 2500, read
    return page


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """The most that is listed, and looked at."""
    monkeypatch.setattr(row_pages, "MOST_LISTED", 400)
    monkeypatch.setattr(row_pages, "MOST_LOOKED_AT", 400)
    return 400


@pytest.mark.usefixtures("few")
def test_a_page_reads_few_rows_of_many(full: Engine, made: Tables) -> None:
    for kind in RowKind:
        page = read_few(full, made, kind, "t020000" if kind is RowKind.TIME else "100")
        assert len(page.rows) == PAGE_ROWS, kind
        assert page.cursor is not None, kind


def test_a_page_on_which_none_waits_reads_few_rows(full: Engine, made: Tables, few: int) -> None:
    task = made.task
    with full.begin() as connection:
        connection.execute(update(task).where(task.c.todo == 0).values(status=Status.SUCCEEDED))
    page = read_few(full, made, RowKind.TIME, "t020000")
    assert (page.rows, page.cursor) == ([], f"t{20_000 + few:06}")


@pytest.mark.usefixtures("few")
def test_few_of_many_that_failed_are_looked_at(full: Engine, made: Tables) -> None:
    task = made.task
    with full.begin() as connection:
        old = update(task).where(task.c.status == Status.FAILED.value)
        connection.execute(old.values(modified=1))
    assert read_few(full, made, RowKind.REFUSED, "0").rows == []


def test_no_more_rows_are_listed_than_the_most(
    harness: LedgerHarness, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(PAGE_ROWS + 1):
        harness.insert(f"r{number}", HOUR)
    page = look(RowKind.RELAY, None)
    assert (page.cursor, page.is_cut) == (str(PAGE_ROWS), False)
    monkeypatch.setattr(row_pages, "MOST_LISTED", PAGE_ROWS)
    page = look(RowKind.RELAY, None)
    assert (len(page.rows), page.cursor, page.is_cut) == (PAGE_ROWS, None, True)
