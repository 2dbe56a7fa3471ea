"""A listener with a ledger: it relays, keeps the gate, and asks the rows."""

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import redis
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from expirebridge import AsyncBridge, Bridge, LateCause, State, current_task
from expirebridge.errors import CompletionRefused
from expirebridge.hooks import Claimed, Direction, End, Passed, Started
from expirebridge.ledger import Ledger, roles
from expirebridge.ledger.commit_notifier import CommitNotifier
from expirebridge.ledger.roles import LateStarts, RelayLoop
from expirebridge.ledger.rows import Status
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.task_records import ClaimedTask
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.logs import Log
from tests.kit.patience import PATIENCE
from tests.kit.steps import state_of
from tests.kit.witness import Witness, listening, until_logged

HOUR = 3_600_000


def has_passed(witness: Witness, times: int) -> bool:
    return len(witness.seen(Passed)) == times


def into(ran: list[int]) -> Callable[[int], None]:
    """A handler that notes its argument."""

    def run(number: int) -> None:
        ran.append(number)

    return run


async def test_a_row_runs_and_is_written_back(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    ran: list[int] = []
    witness = Witness()
    harness.insert("a", func="test.run", params="[1]")
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(1, End.SUCCEEDED)
        await until(lambda: harness.status("a") is Status.SUCCEEDED)
    assert ran == [1]


async def test_the_relay_does_not_wait_for_a_listener_without_the_ledger(
    harness: LedgerHarness,
    settings: Settings,
    with_ledger: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[int] = []
    without, has_it = Witness(), Witness()
    monkeypatch.setattr(socket, "gethostname", lambda: "a")  # of the lower rank
    async with listening(settings, without, run=into(ran)):
        await without.until_hearing()
        monkeypatch.setattr(socket, "gethostname", lambda: "b")
        async with listening(with_ledger, has_it, run=into(ran)):
            await has_it.until_hearing()
            harness.insert("a", func="test.run", params="[1]")
            await until(lambda: harness.status("a") is Status.SUCCEEDED)
    assert ran == [1]


async def test_a_listener_without_a_ledger_passes_over_its_tasks(
    harness: LedgerHarness, settings: Settings, with_ledger: Settings, bridge: Bridge
) -> None:
    ran: list[int] = []
    for id in "abc":
        harness.insert(id, func="test.run", params="[1]")
    harness.settle_down()
    witness = Witness()
    async with listening(settings, witness, run=into(ran)):
        bridge.make_task("test.run", [2], 0)
        bridge.make_task("test.run", [2], 0.3)
        await witness.until_ended(2, End.SUCCEEDED)
        assert ran == [2, 2]
        other = Witness()
        async with listening(with_ledger, other, run=into(ran)):
            await other.until_ended(3, End.SUCCEEDED)
    assert sorted(ran) == [1, 1, 1, 2, 2]


async def test_a_task_without_a_row_is_cancelled(
    harness: LedgerHarness, with_ledger: Settings, store: Store
) -> None:
    ran: list[int] = []
    harness.insert("a", func="test.run", params="[1]")
    harness.settle_down()
    harness.prune("a")
    witness = Witness()
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(1)
    assert ran == []
    assert state_of(store, "a") is State.CANCELLED


async def test_a_task_whose_row_is_done_is_not_run_again(
    harness: LedgerHarness, with_ledger: Settings, store: Store
) -> None:
    ran: list[int] = []
    harness.insert("a", func="test.run", params="[1]")
    harness.settle_down()
    with harness.engine.begin() as connection:
        connection.execute(text("UPDATE expirebridge_task SET status = 10 WHERE id = 'a'"))
    witness = Witness()
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(1, End.SUCCEEDED)
    assert ran == []
    assert state_of(store, "a") is State.SUCCEEDED


@pytest.fixture
def effects(engine: Engine) -> Engine:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS effect"))
        connection.execute(text("CREATE TABLE effect (id varchar(20))"))
    return engine


def count_effects(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text("SELECT count(*) FROM effect")) or 0)


SETTLED = {End.SUCCEEDED, End.REFUSED}


async def test_what_completes_in_its_transaction_has_its_effect_once(
    harness: LedgerHarness, with_ledger: Settings, effects: Engine, store: Store
) -> None:
    def work() -> None:
        with effects.begin() as connection:
            connection.execute(text("INSERT INTO effect VALUES ('a')"))
            current_task().complete_in(connection)
        raise ValueError("after the commit")

    harness.insert("a", func="test.work", params="[]", options='{"retry":"[0]"}')
    witness = Witness()
    async with listening(with_ledger, witness, work=work):
        # The second attempt finds the row done. The relay may have told Redis before, which then
        # refuses what this attempt says.
        await witness.until(lambda: {end.end for end in witness.ended()} & SETTLED)
    assert count_effects(effects) == 1
    assert harness.status("a") is Status.SUCCEEDED
    assert state_of(store, "a") is State.SUCCEEDED


async def test_what_was_cancelled_meanwhile_is_not_completed(
    harness: LedgerHarness, with_ledger: Settings, effects: Engine
) -> None:
    refused: list[str] = []

    def work() -> None:
        harness.cancel("a")
        try:
            with effects.begin() as connection:
                connection.execute(text("INSERT INTO effect VALUES ('a')"))
                current_task().complete_in(connection)
        except CompletionRefused as error:
            refused.append(str(error))
            raise

    harness.insert("a", func="test.work", params="[]", options='{"retry":"[0,0,0]"}')
    witness = Witness()
    async with listening(with_ledger, witness, work=work):
        await until(lambda: harness.status("a") is Status.CANCELLED)
    assert count_effects(effects) == 0
    assert len(refused) == 1


async def test_an_emptied_server_is_rebuilt_while_a_handler_runs(
    harness: LedgerHarness, url: str, engine: Engine, effects: Engine, client: redis.Redis
) -> None:
    began, go_on = threading.Event(), threading.Event()
    settings = Settings(url=url, ledger=engine.url.render_as_string(hide_password=False), lease=1.0)

    def slow() -> None:
        began.set()
        go_on.wait(PATIENCE)
        with effects.begin() as connection:
            connection.execute(text("INSERT INTO effect VALUES ('slow')"))
            current_task().complete_in(connection)

    def quick(id: str) -> None:
        with effects.begin() as connection:
            connection.execute(text("INSERT INTO effect VALUES ('quick')"))
            current_task().complete_in(connection)

    harness.insert("slow", func="test.slow", params="[]")
    for number in range(20):
        harness.insert(f"q{number}", 1500 + 10 * number, func="test.quick", params="[1]")
    witness = Witness()
    async with listening(settings, witness, slow=slow, quick=quick):
        await until(began.is_set)
        client.flushall()
        go_on.set()
        await until(
            lambda: all(
                harness.status(id) is Status.SUCCEEDED
                for id in ["slow", *(f"q{number}" for number in range(20))]
            )
        )
    assert count_effects(effects) == 21


async def test_a_copy_of_the_ledger_stops_with_one_error(
    harness: LedgerHarness, with_ledger: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    harness.insert("a", func="test.run", params="[1]")
    harness.settle_down()  # by a relay at another place
    with harness.engine.begin() as connection:
        connection.execute(text("UPDATE expirebridge_pass SET nonce = 'x-elsewhere'"))
    ran: list[int] = []
    async with listening(with_ledger, run=into(ran)):
        await until_logged(lambda: "another ledger" in caplog.text)
    assert ran == []


async def test_an_sql_database_that_was_restored_to_earlier_stops_with_one_error(
    harness: LedgerHarness, with_ledger: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    harness.insert("a", 3_600_000, func="test.run", params="[1]")
    harness.settle_down()
    tables = (harness.made.task, harness.made.passes)
    with harness.engine.begin() as connection:
        saved = [connection.execute(table.select()).mappings().all() for table in tables]
    harness.insert("b", func="test.run", params="[2]")
    harness.settle_down()
    with harness.engine.begin() as connection:
        for table, rows in zip(tables, saved, strict=True):
            connection.execute(table.delete())
            computed = {column.name for column in table.c if column.computed is not None}
            values = [{name: row[name] for name in row if name not in computed} for row in rows]
            connection.execute(table.insert(), values)
    ran: list[int] = []
    witness = Witness()
    async with listening(with_ledger, witness, run=into(ran)):
        await until_logged(lambda: "restored from a backup" in caplog.text)
    assert ran == []
    assert state_of(store, "b") is State.PENDING
    assert caplog.text.count("restored from a backup") == 1


async def test_a_misspelt_function_of_a_row_is_warned_of_once(
    engine: Engine, with_ledger: Settings, log: Log
) -> None:
    async with listening(with_ledger, run=into([])):
        ledger = Ledger(engine.url, redis=with_ledger.url)
        with Session(engine) as session, session.begin():
            ledger.make_task(session, "test.run", [1], "1h")
            ledger.make_tasks(session, [{"func": "test.rnu", "delay": "1h"}] * 3)
        await log.until("unknown function")
        with engine.begin() as connection:  # whose commit notifies nobody
            ledger.make_task(connection, "test.run2", [1], "1h")
        await log.until("unknown function", 2)
    named = [fields["func"] for fields in log.fields("unknown function")]
    assert named == ["test.rnu", "test.run2"]
    assert "test.run" in log.text()


async def test_a_notification_makes_the_relay_look_at_once(
    harness: LedgerHarness, engine: Engine, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RelayLoop, "interval", 3600.0)
    ran: list[int] = []
    witness, notifier = Witness(), CommitNotifier(with_ledger)
    harness.insert("a", func="test.run", params="[1]")
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(1)
        harness.insert("b", func="test.run", params="[2]")
        notifier.notify()
        await witness.until_ended(2)
        ledger = Ledger(engine.url, redis=with_ledger.url)
        with Session(engine) as session, session.begin():
            ledger.make_task(session, "test.run", [3], 0)
        await witness.until_ended(3)
    assert ran == [1, 2, 3]


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay looks when it begins, and then only when it is woken."""
    monkeypatch.setattr(RelayLoop, "interval", 3600.0)


def brought_back(witness: Witness) -> list[int]:
    """The rows of each pass that wrote back how tasks ended."""
    return [each.rows for each in witness.seen(Passed) if each.direction is Direction.BACK]


@pytest.mark.usefixtures("no_looks")
async def test_an_end_is_written_back_at_once(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    ran: list[int] = []
    witness = Witness()
    harness.insert("a", func="test.run", params="[1]")
    harness.insert("b", 300, func="test.run", params="[2]")
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until(lambda: sum(brought_back(witness)) == 2)
    assert harness.status("a") is harness.status("b") is Status.SUCCEEDED


@pytest.mark.usefixtures("no_looks")
async def test_an_attempt_that_is_to_be_repeated_is_written_back_at_once(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    def fail() -> None:
        raise ValueError("no")

    witness = Witness()
    harness.insert("a", func="test.fail", params="[]", options='{"retry":"[3600]"}')
    async with listening(with_ledger, witness, fail=fail):
        await witness.until(lambda: brought_back(witness))
    assert harness.row("a").retry_times == 1


@pytest.mark.usefixtures("no_looks")
async def test_tasks_that_end_together_are_written_back_by_one_pass(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    many = 20
    began: list[int] = []
    go_on = asyncio.Event()

    async def wait(number: int) -> None:
        began.append(number)
        if len(began) == many:
            go_on.set()
        await go_on.wait()

    witness = Witness()
    for number in range(many):
        harness.insert(str(number), func="test.wait", params=f"[{number}]")
    async with listening(replace(with_ledger, concurrency=many), witness, wait=wait):
        await witness.until(lambda: sum(brought_back(witness)) == many)
    assert brought_back(witness) == [many]


@pytest.mark.usefixtures("no_looks")
async def test_ends_soon_after_a_pass_wait_for_each_other(
    harness: LedgerHarness, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RelayLoop, "rest", 3600.0)
    witness = Witness()
    for id in "ab":
        harness.insert(id, func="test.run", params="[1]")
    async with listening(with_ledger, witness, run=into([])):
        await witness.until_ended(2)
        assert brought_back(witness) == []
        CommitNotifier(with_ledger).notify()
        await witness.until(lambda: brought_back(witness))
    assert brought_back(witness) == [2]


@pytest.mark.parametrize("late", [-1.0, math.inf])
async def test_the_relay_rests_only_while_tasks_begin_late(
    harness: LedgerHarness, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    rests: list[float] = []

    async def make_room(_: RelayLoop, seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(roles, "FULL", 1)
    monkeypatch.setattr(roles, "LATE", late)
    monkeypatch.setattr(RelayLoop, "make_room", make_room)
    witness = Witness()
    async with (
        listening(with_ledger, witness, run=into([])),
        AsyncBridge(with_ledger.url) as bridge,
    ):
        rounds = 0
        while not rounds or (late < 0 and not rests):  # a look may come between the two
            rounds += 1
            await bridge.make_task("test.run", [1], 0)
            await witness.until_ended(rounds)
            harness.insert(f"a{rounds}", HOUR)
            CommitNotifier(with_ledger).notify()
            await witness.until(partial(has_passed, witness, rounds))
    assert bool(rests) is (late < 0)


@pytest.mark.parametrize(
    ("ledger", "made", "counts"),
    [(None, 99, 1), (b"1 1", 90, 1), (b"1 1", 99, 0), (b"1 1", None, 0)],
)
def test_a_row_that_was_relayed_when_it_was_due_does_not_slow_the_relay(
    ledger: bytes | None, made: int | None, counts: int
) -> None:
    claimed = ClaimedTask(
        "a", "t", "test.run", b"[]", b"", due=99_500, attempt=1, lapses=0, made=made, ledger=ledger
    )
    attempt = Attempt(claimed, None, hint="", timeout=1.0)
    late_starts = LateStarts()
    late_starts.hear_end(attempt)
    assert late_starts.count == 0
    attempt.lateness = 2 * roles.LATE
    late_starts.hear_end(attempt)
    assert late_starts.count == counts


def test_notifying_a_server_that_is_away_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, tried = threading.Event(), threading.Event()
    connected = CommitNotifier._connected

    def held(self: CommitNotifier) -> object:
        may_go_on.wait(PATIENCE)
        try:
            return connected(self)
        finally:
            tried.set()

    monkeypatch.setattr(CommitNotifier, "_connected", held)
    notifier = CommitNotifier(Settings(url="redis://127.0.0.1:1/1"))
    for _ in range(100):
        notifier.notify()
    assert not tried.is_set()  # nobody waited for it
    may_go_on.set()
    assert tried.wait(PATIENCE)
    notifier.notify()


def lose(client: redis.Redis, *ids: str) -> None:
    """Make the server forget these tasks, as if it had come back without them."""
    for id in ids:
        client.delete(f"expirebridge:task:{id}", *client.keys(f"{id}:[?]*"))
        for name in ("pending", "succeeded"):
            client.zrem(f"expirebridge:{name}", id)


def end(client: redis.Redis, name: str) -> None:
    """Let listeners hear of a key's end, and of nothing else."""
    database = client.connection_pool.connection_kwargs["db"]
    client.publish(f"__keyevent@{database}__:expired", name)


async def test_the_echo_of_a_task_that_the_server_lost_does_not_run_it_again(
    harness: LedgerHarness, with_ledger: Settings, client: redis.Redis
) -> None:
    ran: list[int] = []
    harness.insert("a", func="test.run", params="[1]")
    async with listening(with_ledger, run=into(ran)):
        await until(lambda: harness.status("a") is Status.SUCCEEDED)
    lose(client, "a")
    witness = Witness()
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_hearing()
        for name in ("a:?test.run?[1]", "b:?test.run?[2]"):  # the second one is of another client
            end(client, name)
        await witness.until_ended(1, End.SUCCEEDED)
    assert ran == [1, 2]


async def test_the_echo_of_a_task_that_the_server_lost_has_its_row_carried_again(
    harness: LedgerHarness, with_ledger: Settings, client: redis.Redis, store: Store
) -> None:
    ran: list[int] = []
    witness = Witness()
    harness.insert("a", 3_600_000, func="test.run", params="[1]")
    harness.settle_down()
    due = client.zscore("expirebridge:pending", "a")
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_hearing()
        lose(client, "a")
        end(client, "a:?test.run?[1]")
        await until(lambda: client.exists("expirebridge:task:a"))
        await until(lambda: harness.row("a").todo == 0)
    assert ran == []
    assert state_of(store, "a") is State.PENDING
    assert client.zscore("expirebridge:pending", "a") == due


async def test_what_is_relayed_late_began_late_because_of_its_ledger(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    witness = Witness()
    async with listening(with_ledger, witness, run=into([])) as listener:
        await witness.until(lambda: witness.seen(Claimed))
        for consumer in listener._servers.consumers:
            consumer.hindrances._spans.clear()  # as if it had been there for long
        harness.insert("a", func="test.run", params="[1]", at_ms=round(time.time() * 1000) - 5000)
        await witness.until_ended(1, End.SUCCEEDED)
    assert [event.cause for event in witness.seen(Started)] == [LateCause.LEDGER]
