"""Tasks that Redis has already get rows, while listeners and producers go on."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from expirebridge import Bridge, State
from expirebridge.hooks import End
from expirebridge.ledger.adoption import STATES, Adopted, adopt_all, row_of
from expirebridge.ledger.partition import Office
from expirebridge.ledger.relay import finish
from expirebridge.ledger.tables import ADOPTED, Status, Todo
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.client import Store
from expirebridge.store.commands import Settlement, Stored
from expirebridge.store.partitions import Partitions
from tests.kit.ledgers import Books
from tests.kit.processes import COMMAND
from tests.kit.steps import settle, state_of
from tests.kit.witness import Witness, listening

pytestmark = [pytest.mark.rest, pytest.mark.timeout(60)]

HOUR = 3_600_000


@pytest.fixture
def office(with_ledger: Settings) -> Iterator[Office]:
    with closing(Office(with_ledger)) as office:
        yield office


def adopt(office: Office, store: Store, func: str | None = None) -> Adopted:
    return adopt_all(office, Partitions(store.client, prefix="expirebridge"), func=func)


def stored(store: Store, id: str) -> tuple[Stored, State]:
    return next(
        (task, state)
        for state in STATES
        for task in store.run(commands.stored_page(state, commands.BEGINNING)).tasks
        if task.id == id
    )


def announce(books: Books, id: str) -> None:
    """Insert the row of a task, as a command that dies then."""
    row = row_of(*stored(books.store, id))
    books.insert(row.pop("id"), **row)


def claim(store: Store, token: str = "t", room: int = 100) -> list[str]:
    call = commands.claim(token, Settings(), room=room, idle=True, gate=0)
    return [task.id for task in store.run(call).tasks]


def test_each_task_gets_a_row_and_comes_back(
    books: Books, bridge: Bridge, store: Store, office: Office, client: redis.Redis
) -> None:
    bridge.make_task("mail.send", [0], 0, id="runs")
    assert claim(store) == ["runs"]
    bridge.make_task("mail.send", [1], 0, id="tried", retry=[60, 60], tags=["a", "b"], timeout=9)
    claim(store, "u")
    settle(store, Settlement("tried", "u", "retry", 60, "ValueError: no"))
    bridge.make_task("mail.send", [2], 3600, id="paused")
    bridge.pause("paused")
    bridge.make_task("mail.send", ["x" * 5000], 3600, id="long")
    bridge.watch("watched", "mail.send", [3], ttl=3600)
    assert adopt(office, store) == Adopted(adopted=5)
    rows = {row.id: row for row in books.all_rows()}
    assert set(rows) == {"runs", "tried", "paused", "long", "watched"}
    assert {row.todo for row in rows.values()} == {Todo.NOTHING}
    assert min(row.stamp for row in rows.values()) > 0
    tried = rows["tried"]
    assert (tried.retry_times, tried.message) == (1, "ValueError: no")
    assert json.loads(tried.options)["tags"] == ["a", "b"]
    before = {id: bridge.get(id) for id in rows}
    client.flushall()
    books.settle_down()
    for id, task in before.items():
        back = bridge.get(id)
        assert task is not None
        assert back is not None
        assert (back.func, back.args, back.tags) == (task.func, task.args, task.tags)
    assert state_of(store, "paused") is State.PAUSED
    back = bridge.get("tried")
    assert back is not None
    assert before["tried"] is not None
    assert (back.attempt, back.due) == (before["tried"].attempt, before["tried"].due)


def test_it_is_repeated_without_doing_anything(
    books: Books, bridge: Bridge, store: Store, office: Office
) -> None:
    bridge.make_tasks([{"func": "mail.send", "args": [n], "delay": 3600} for n in range(110)])
    assert adopt(office, store).adopted == 110
    books.settle_down()
    before = books.numbers(), books.all_rows()
    assert adopt(office, store) == Adopted()
    books.settle_down()
    assert (books.numbers()[1:], books.all_rows()) == (before[0][1:], before[1])


def test_one_function_is_adopted_and_others_are_left(
    books: Books, bridge: Bridge, store: Store, office: Office
) -> None:
    bridge.make_task("mail.send", [1], 3600, id="a")
    bridge.make_task("mail.sender", [1], 3600, id="b")
    assert adopt(office, store, "mail.send") == Adopted(adopted=1)
    assert [row.id for row in books.all_rows()] == ["a"]


def test_ticks_and_ids_that_have_a_row_are_left(
    books: Books, bridge: Bridge, store: Store, office: Office
) -> None:
    bridge.schedule("nightly", "mail.send", [1], every="1h")
    books.insert("a")
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    store.client.zadd("expirebridge:succeeded", {"a": 1})
    store.run(commands.sweep(Settings()))
    bridge.make_task("mail.send", [2], 3600, id="a")
    assert adopt(office, store) == Adopted(ticks=1, taken=1)
    assert books.status("a") is Status.SUCCEEDED


def test_what_ends_before_its_row_is_carried_does_not_run_again(
    books: Books, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.send", [1], 0, id="a")
    announce(books, "a")
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    assert claim(store) == []
    assert books.status("a") is Status.SUCCEEDED


@pytest.mark.parametrize("how", ["forgotten", "cancelled", "replaced", "emptied"])
def test_what_is_gone_before_its_row_is_carried_has_none(
    books: Books, bridge: Bridge, store: Store, client: redis.Redis, how: str
) -> None:
    bridge.make_task("mail.send", [1], 3600, id="a")
    announce(books, "a")
    match how:
        case "replaced":
            bridge.make_task("mail.send", [2], 3600, id="a", if_exists="replace")
        case "emptied":
            client.flushall()
        case _:
            bridge.cancel("a")
            client.delete("expirebridge:task:a")
    books.settle_down()
    assert books.all_rows() == []
    task = bridge.get("a")
    assert (task is not None and list(task.args) == [2]) is (how == "replaced")


def test_what_is_asked_of_the_row_meanwhile_is_done(
    books: Books, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    for id in ("cancelled", "moved"):
        bridge.make_task("mail.send", [1], 3600, id=id)
        announce(books, id)
    books.cancel("cancelled")
    books.change("moved", at_ms=None, delay_ms=2 * HOUR, due=None)
    books.settle_down()
    assert state_of(store, "cancelled") is State.CANCELLED
    assert books.status("cancelled") is Status.CANCELLED
    moved = bridge.get("moved")
    assert moved is not None
    assert client.pttl(moved.key) > 1.9 * HOUR


def test_a_replaced_task_that_runs_is_left_until_its_successor_waits(
    books: Books, bridge: Bridge, store: Store, office: Office
) -> None:
    bridge.make_task("mail.send", [1], 0, id="a")
    claim(store)
    announce(books, "a")
    bridge.make_task("mail.send", [2], 3600, id="a", if_exists="replace")
    books.settle_down()
    assert books.all_rows() == []
    assert adopt(office, store) == Adopted()
    settle(store, Settlement("a", "t", "succeeded"))
    assert adopt(office, store) == Adopted(adopted=1)
    assert books.row("a").params == "[2]"


STEPS = ["read", "number taken", "page read", "carried", "stamped"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lost", [False, True])
def test_whoever_dies_at_a_step_leaves_a_task_with_its_row_or_without(
    books: Books, bridge: Bridge, store: Store, client: redis.Redis, step: str, lost: bool
) -> None:
    books.settle_down()  # the two know each other
    bridge.make_task("mail.send", [1], 3600, id="a")
    announce(books, "a")
    steps: Any = books.relay().carry()
    while next(steps) != step:
        pass
    if lost:
        client.flushall()
    books.settle_down()
    row, task = books.row("a"), bridge.get("a")
    assert (row is None) == (task is None)
    if row is not None:
        assert (row.todo, row.status) == (Todo.NOTHING, Status.WAITING)
        assert row.stamp > ADOPTED
    assert row is not None or lost
    finish(books.relay().carry())


def into(ran: list[int]) -> Callable[[int], None]:
    def run(number: int) -> None:
        ran.append(number)

    return run


async def test_listeners_and_producers_go_on_meanwhile(
    books: Books, with_ledger: Settings, office: Office, store: Store, bridge: Bridge
) -> None:
    ran: list[int] = []
    witness = Witness()
    bridge.make_tasks([{"func": "test.run", "args": [n], "delay": n * 0.004} for n in range(400)])
    async with listening(with_ledger, witness, run=into(ran)):
        adopting = asyncio.create_task(asyncio.to_thread(adopt, office, store))
        await asyncio.to_thread(
            bridge.make_tasks,
            [{"func": "test.run", "args": [n], "delay": 0.5} for n in range(400, 500)],
        )
        done = await adopting
        await witness.until_ended(500, End.SUCCEEDED)
        async with asyncio.timeout(20):
            while any(row.status == Status.WAITING for row in books.all_rows()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert sorted(ran) == list(range(500))
    assert len(books.all_rows()) == done.adopted


def started(settings: Settings) -> subprocess.Popen[bytes]:
    """The command, in a process of its own."""
    environment = {"EXPIREBRIDGE_URL": settings.url, "EXPIREBRIDGE_LEDGER": settings.ledger or ""}
    return subprocess.Popen(
        [*COMMAND, "ledger", "adopt"], env=os.environ | environment, stdout=subprocess.DEVNULL
    )


def test_a_killed_command_is_repeated(books: Books, with_ledger: Settings, bridge: Bridge) -> None:
    bridge.make_tasks([{"func": "mail.send", "args": [n], "delay": 3600} for n in range(300)])
    with started(with_ledger) as process:
        while len(books.all_rows()) < 100:
            assert process.poll() is None
        process.kill()
    assert len(books.all_rows()) < 300
    with started(with_ledger) as process:
        assert process.wait() == 0
    rows = books.all_rows()
    assert len(rows) == 300
    assert {(row.todo, row.status) for row in rows} == {(Todo.NOTHING, Status.WAITING)}
