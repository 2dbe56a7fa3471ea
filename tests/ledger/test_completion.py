"""A handler completes its task in the transaction of its effects: once, or not at all."""

import threading
from typing import Any

import pytest
from sqlalchemy import Engine, text

from expirebridge.errors import CompletionRefused
from expirebridge.ledger import Ledger, Tables, complete
from tests.kit.patience import PATIENCE

CLAIM: dict[str, Any] = {
    "ledger": "default",
    "id": "x",
    "generation": 1,
    "revision": 1,
    "attempt": 3,
}


@pytest.fixture
def task(engine: Engine, ledger: Ledger) -> None:
    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [], 5, id="x")
        connection.execute(text("UPDATE expirebridge_task SET generation = 1"))


def status(engine: Engine, made: Tables) -> tuple[int, int]:
    with engine.connect() as connection:
        [row] = connection.execute(made.task.select())
    return row.status, row.retry_times


@pytest.mark.usefixtures("task")
def test_it_is_part_of_the_transaction(engine: Engine, made: Tables) -> None:
    with engine.connect() as connection:
        complete(connection, made, **CLAIM)
        connection.rollback()
    assert status(engine, made) == (1, 0)
    with engine.begin() as connection:
        complete(connection, made, **CLAIM)
    assert status(engine, made) == (10, 2)


@pytest.mark.usefixtures("task")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda ledger, session: ledger.cancel(session, "x"), "was cancelled"),
        (lambda ledger, session: ledger.reschedule(session, "x", 5), "was rescheduled"),
        (
            lambda ledger, session: ledger.make_task(
                session, "a.b", [], 5, id="x", if_exists="replace"
            ),
            "was replaced",
        ),
        (
            lambda ledger, session: complete(session, ledger.tables, **CLAIM),
            "is succeeded already",
        ),
    ],
    ids=["cancel", "reschedule", "replace", "complete"],
)
def test_what_was_committed_before_wins(
    change: Any, reason: str, engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with engine.begin() as connection:
        change(ledger, connection)
    before = status(engine, made)
    with engine.connect() as connection, pytest.raises(CompletionRefused, match=reason):
        complete(connection, made, **CLAIM)
    assert status(engine, made) == before


def test_a_row_that_is_gone_is_named(engine: Engine, made: Tables) -> None:
    with engine.connect() as connection, pytest.raises(CompletionRefused, match="no row any more"):
        complete(connection, made, **CLAIM)


@pytest.mark.usefixtures("task")
@pytest.mark.parametrize("ends", ["rollback", "commit"])
def test_of_two_attempts_at_once_one_is_refused(ends: str, engine: Engine, made: Tables) -> None:
    """The second waits for the first one's commit, or for its rollback."""
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    refused: list[bool] = []
    began = threading.Event()

    def second() -> None:
        with engine.connect() as connection:
            connection.execute(made.schema.select())  # its transaction has begun
            began.set()
            try:
                complete(connection, made, **CLAIM)
            except CompletionRefused:
                refused.append(True)
            else:
                refused.append(False)

    with engine.connect() as first:
        complete(first, made, **CLAIM)
        thread = threading.Thread(target=second)
        thread.start()
        assert began.wait(PATIENCE)
        thread.join(0.2)  # time passes: it would have been answered by then
        assert refused == []
        getattr(first, ends)()
        thread.join(PATIENCE)
    assert refused == [ends == "commit"]
