"""A handler that is called alone ends as it does in a listener, whatever it did with its row."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from expirebridge import Discard, Retry, Snooze, current_task
from expirebridge.errors import CompletionRefused
from expirebridge.hooks import End
from expirebridge.ledger import Ledger
from expirebridge.ledger.engine import engine_of
from expirebridge.settings import Settings
from expirebridge.testing import run_handler
from tests.kit.ledgers import LedgerHarness
from tests.kit.witness import Witness, listening

ENDS = {
    "fails": End.RETRY,
    "rolls-back": End.RETRY,
    "completes": End.SUCCEEDED,
    "completes-and-fails": End.SUCCEEDED,
    "completes-and-discards": End.SUCCEEDED,
    "completes-and-retries": End.SUCCEEDED,
    "completes-and-snoozes": End.SNOOZED,
    "completes-twice": End.SUCCEEDED,
    "is-cancelled": End.DROPPED,
    "loses-its-row": End.DROPPED,
}
"""How an attempt ends, by what its handler does."""
RAISED: dict[str, type[BaseException]] = {
    "fails": ValueError,
    "rolls-back": ValueError,
    "completes-and-fails": ValueError,
    "completes-twice": CompletionRefused,
    "is-cancelled": CompletionRefused,
    "loses-its-row": CompletionRefused,
}
ANSWERS: dict[str, Callable[[], BaseException]] = {
    "completes-and-fails": ValueError,
    "completes-and-discards": lambda: Discard("no"),
    "completes-and-retries": lambda: Retry(after="1h"),
    "completes-and-snoozes": lambda: Snooze(after="1h"),
}
BEFORE = {
    "is-cancelled": "UPDATE expirebridge_task SET wanted = 'cancelled', revision = revision + 1",
    "loses-its-row": "DELETE FROM expirebridge_task",
}
"""What somebody does to the row while the handler runs."""


@pytest.fixture
def own(engine: Engine) -> Iterator[Engine]:
    """The engine of the handlers."""
    own = engine_of(engine.url)
    yield own
    own.dispose()


@pytest.fixture
def handler(own: Engine, ledger: Ledger) -> Callable[[str], None]:
    """One that does what it is told."""

    def complete() -> None:
        with Session(own) as session, session.begin():
            current_task().complete_in(session)

    def run(what: str) -> None:
        if what in BEFORE:
            with own.begin() as connection:
                connection.execute(
                    text(f"{BEFORE[what]} WHERE id = :id"), {"id": current_task().id}
                )
        if what == "fails":
            raise ValueError
        if what == "rolls-back":
            with Session(own) as session, session.begin():
                current_task().complete_in(session)
                raise ValueError
        complete()
        if what == "completes-twice":
            complete()
        if what in ANSWERS:
            raise ANSWERS[what]()

    return run


async def test_it_ends_as_in_a_listener(
    harness: LedgerHarness, with_ledger: Settings, handler: Callable[[str], None]
) -> None:
    for what in ENDS:
        harness.insert(what, func="test.run", params=f'["{what}"]')
    witness = Witness()
    async with listening(replace(with_ledger, concurrency=1), witness, run=handler):
        ended = await witness.until_ended(len(ENDS))
    assert {each.task.id: each.end for each in ended} == ENDS


@pytest.mark.parametrize("what", ENDS)
def test_it_ends_so_alone(
    what: str, engine: Engine, ledger: Ledger, handler: Callable[[str], None]
) -> None:
    with engine.begin() as connection:
        ledger.make_task(connection, "test.run", [what], "1h", id="a")
    ran = run_handler(handler, [what], id="a", raising=False)
    assert ran.end is ENDS[what]
    assert type(ran.error) is RAISED.get(what, type(None))


@pytest.mark.parametrize("what", RAISED)
def test_what_it_raises_is_raised(
    what: str, engine: Engine, ledger: Ledger, handler: Callable[[str], None]
) -> None:
    with engine.begin() as connection:
        ledger.make_task(connection, "test.run", [what], "1h", id="a")
    with pytest.raises(RAISED[what]):
        run_handler(handler, [what], id="a")


def _session(engine: Engine) -> Any:
    return Session(engine)


def _registry(engine: Engine) -> Any:
    return scoped_session(sessionmaker(engine))


def _connection(engine: Engine) -> Any:
    return engine.connect()


def _driver(engine: Engine) -> Any:
    own: Any = engine.raw_connection().driver_connection
    if isinstance(own, sqlite3.Connection):
        own.isolation_level = "DEFERRED"  # as without an engine
    return own


@pytest.mark.parametrize("opened", [_session, _registry, _connection, _driver])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_each_kind_of_transaction_is_looked_at(
    end: str, opened: Callable[[Engine], Any], own: Engine, engine: Engine, ledger: Ledger
) -> None:
    left: list[Any] = []

    def complete() -> None:
        transaction = opened(own)
        left.append(transaction)
        current_task().complete_in(transaction)
        getattr(transaction, end)()
        raise ValueError

    with engine.begin() as connection:
        ledger.make_task(connection, "test.run", [], "1h", id="a")
    ran = run_handler(complete, id="a", raising=False)
    assert ran.end is (End.SUCCEEDED if end == "commit" else End.RETRY)
    if not isinstance(left[0], sqlite3.Connection):
        left[0].close()


@pytest.mark.parametrize("completes", [True, False])
def test_an_open_transaction_of_the_test_is_looked_at(
    engine: Engine, own: Engine, ledger: Ledger, *, completes: bool
) -> None:
    with own.connect() as connection:
        ledger.make_task(connection, "test.run", [], "1h", id="a")

        def complete() -> None:
            joining = Session(connection, join_transaction_mode="create_savepoint")
            with joining as session, session.begin():
                current_task().complete_in(session)
                if not completes:
                    raise ValueError
            raise ValueError

        ran = run_handler(complete, id="a", raising=False)
        assert ran.end is (End.SUCCEEDED if completes else End.RETRY)
        connection.rollback()
