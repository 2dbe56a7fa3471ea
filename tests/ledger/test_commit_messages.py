"""What producers say of a commit, and what of that a listener takes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from expirebridge.errors import TaskExists
from expirebridge.ledger import Ledger
from expirebridge.settings import Settings
from expirebridge.task.commit_message import MOST_IDS, commit_message, ids_committed
from tests.kit.patience import PATIENCE

MANY = [f"t{number}" for number in range(MOST_IDS)]


def test_a_message_names_ids() -> None:
    assert ids_committed(commit_message(["a", "b@1"]).encode()) == ["a", "b@1"]
    assert ids_committed(commit_message(MANY).encode()) == MANY
    assert ids_committed(commit_message().encode()) == []


@pytest.mark.parametrize(
    "message",
    [
        b"ledger a b?[]", b"ledger \xff\xfe", b"ledger " + b"a" * 129, b"ledger " + b"a " * 100_000,
        b"ledger a\0", commit_message([*MANY, "x"]).encode(), b"ledger \xe4",
        b"ledger " + b" ".join(b"x" * 128 for _ in range(40)), b"ledgers a", b"ledger\xff a",
    ],
)  # fmt: skip
def test_of_a_garbled_message_only_the_first_word_counts(message: bytes) -> None:
    assert ids_committed(message) == []


class Ear:
    """Hears what is published."""

    def __init__(self, client: redis.Redis, channel: str) -> None:
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe(channel)
        self._pubsub.get_message(timeout=PATIENCE)

    def heard(self) -> str:
        while True:
            message = self._pubsub.get_message(timeout=PATIENCE)
            if message is not None:
                return bytes(message["data"]).decode()


@pytest.fixture
def ear(client: redis.Redis) -> Iterator[Ear]:
    database = client.connection_pool.connection_kwargs["db"]
    ear = Ear(client, f"expirebridge:doorbell:{database}")
    yield ear
    ear._pubsub.close()


@pytest.fixture
def ours(engine: Engine, with_ledger: Settings) -> Ledger:
    return Ledger(engine.url, redis=with_ledger.url)


pytestmark = pytest.mark.one_database


def test_a_session_says_what_was_made_in_it(engine: Engine, ours: Ledger, ear: Ear) -> None:
    with Session(engine) as session, session.begin():
        ours.make_task(session, "a.b", [], 0, id="a")
        with suppress(ZeroDivisionError), session.begin_nested():
            ours.make_tasks(session, [{"func": "a.b", "delay": 0, "id": id} for id in "bc"])
            raise ZeroDivisionError  # what is rolled back has no row: harmless
        with session.begin_nested():
            ours.make_task(session, "a.b", [], 0, id="d")
    assert ear.heard() == "ledger a b c d"
    with Session(engine) as session, session.begin():
        ours.make_task(session, "a.b", [], 0, id="e")
    assert ear.heard() == "ledger e"


def cancels(ours: Ledger, session: Session) -> None:
    ours.cancel(session, "a")


def makes_many(ours: Ledger, session: Session) -> None:
    ours.make_tasks(session, [{"func": "a.b", "delay": 0, "id": id} for id in (*MANY, "more")])


@pytest.mark.parametrize("change", [cancels, makes_many])
def test_other_changes_are_told_without_ids(
    engine: Engine, ours: Ledger, ear: Ear, change: Callable[[Ledger, Session], None]
) -> None:
    with Session(engine) as session, session.begin():
        change(ours, session)
    assert ear.heard() == "ledger"
    with Session(engine) as session, session.begin():
        ours.make_task(session, "a.b", [], 0, id="z")
        change(ours, session)
    assert [ear.heard(), ear.heard()] == ["ledger z", "ledger"]


def test_a_transaction_without_events_says_it_when_it_is_told(
    engine: Engine, ours: Ledger, ear: Ear
) -> None:
    with engine.begin() as connection:
        ours.make_task(connection, "a.b", [], 0, id="a")
        with pytest.raises(TaskExists):
            ours.make_task(connection, "a.b", [], 0, id="a")
    elsewhere = threading.Thread(target=ours.notify)
    elsewhere.start()
    elsewhere.join()
    assert ear.heard() == "ledger"  # another thread's transactions are its own
    ours.notify()
    assert [ear.heard(), ear.heard()] == ["ledger a", "ledger"]
    ours.notify()
    assert ear.heard() == "ledger"
