"""Two wishes for one task within a moment: the later one counts, whatever became of the first.

Each test has TASKS tasks side by side, and counts those for which a promise was broken.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, create_engine, text

from expirebridge import Bridge, Change, Retry, State
from expirebridge.ledger import Ledger
from expirebridge.ledger.engine import begin_immediate
from expirebridge.ledger.schema import create
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.settings import Settings
from tests.kit.databases import Database
from tests.kit.patience import PATIENCE
from tests.kit.row_histories import RETRIES, TASKS, Run, Stage, Tale

LATE = 0.25
"""Seconds that may pass from the question to a row until its handler is called."""
CLOCKS = 0.01
"""Seconds by which two clocks may differ."""
LOCKS = {
    "sqlite": ("BEGIN EXCLUSIVE", "ROLLBACK"),
    "postgresql": ("LOCK TABLE expirebridge_task", "ROLLBACK"),
    "mariadb": ("LOCK TABLES expirebridge_task WRITE", "UNLOCK TABLES"),
}
"""What keeps everybody else from reading the rows, and what lets them again."""


@pytest.fixture(params=[1, 2], ids=["one listener", "two listeners"])
async def stage(
    request: pytest.FixtureRequest, shared_database: Database, url: str, bridge: Bridge
) -> AsyncIterator[Stage]:
    own = create_engine(shared_database.new_database(), pool_size=20)
    if own.dialect.name == "sqlite":
        begin_immediate(own)
    with own.begin() as connection:
        create(connection, own_tables())
        connection.execute(text("CREATE TABLE effect (id varchar(20))"))
    settings = Settings(
        url=url, ledger=own.url.render_as_string(hide_password=False),
        concurrency=max(100, 2 * TASKS), lease=5.0, grace=3.0,
    )  # fmt: skip
    stage = Stage(own, settings, bridge, request.param)
    yield stage
    stage.client.close()
    own.dispose()


def started_again(tale: Tale) -> list[str]:
    late = tale.wish + LATE if tale.wish is not None else None
    return ["started after a committed cancel"] if tale.begun_after(late) else []


async def test_a_cancel_counts_that_follows_a_carried_reschedule(stage: Stage) -> None:
    async def cancel(tale: Tale) -> None:
        await stage.wish(tale, stage.quiet.cancel)
        await stage.moment(0, 0.1)
        stage.let_go(tale.runs[0])

    async with stage.opened():
        await stage.make_and_hold(quietly=False)
        await stage.each(
            lambda tale: stage.commit(
                stage.quiet.reschedule, tale.id, stage.chance.uniform(1.5, 2.0)
            )
        )
        await stage.carried()
        await stage.each(cancel)
        before = await stage.rest()
        ended = {id: row.status for id, row in stage.rows().items()}
        runs = {tale.id: len(tale.runs) for tale in stage.tales}
        await stage.ask(stage.client.flushall)
        after = await stage.rest()

    def faults(tale: Tale) -> Iterator[str]:
        yield from started_again(tale)
        if not tale.is_wished:
            yield "could not be cancelled"
        if ended[tale.id] not in {10, 30}:
            yield f"ended with status {ended[tale.id]}"
        if len(tale.runs) > runs[tale.id]:
            yield "ran once more when Redis had lost it"

    stage.none_broke(faults, before, after)


async def _run_now(stage: Stage, tale: Tale) -> None:
    assert await stage.ask(stage.bridge.run_now, tale.id) is Change.DUE_NOW


async def _set(stage: Stage, tale: Tale) -> None:
    task = await stage.ask(stage.bridge.get, tale.id)
    assert task is not None
    await stage.ask(stage.client.set, task.key, 0, px=900)


async def _reschedule(stage: Stage, tale: Tale) -> None:
    assert await stage.ask(stage.bridge.reschedule, tale.id, 0.9) is Change.REARMED


AGAIN = {"run_now": _run_now, "SET": _set, "reschedule": _reschedule}


async def test_a_cancel_counts_that_follows_what_redis_was_told(stage: Stage) -> None:
    """One third of the tasks is told so in each way: a running one, or one that has just ended."""

    def way_of(tale: Tale) -> str:
        return list(AGAIN)[tale.number % 3]

    async def end(tale: Tale) -> None:
        stage.let_go(tale.runs[0])
        await stage.look(lambda: stage.state_of(tale.id) is not State.RUNNING, PATIENCE)

    async def tell(tale: Tale) -> None:
        way = way_of(tale)
        if way != "reschedule":
            await end(tale)
        told = time.time()
        await AGAIN[way](stage, tale)
        if way == "reschedule" and tale.number % 4 < 2:
            await end(tale)
        await stage.moment(0, 0.1)
        await stage.wish(tale, stage.quiet.cancel)
        stage.let_go(tale.runs[0])
        if tale.wish is not None and way != "run_now" and tale.wish > told + 0.9 - LATE:
            tale.wish = None  # too late: it may be running by then

    async with stage.opened():
        await stage.make_and_hold()
        await stage.each(tell)
        wrong = await stage.rest()

    def faults(tale: Tale) -> Iterator[str]:
        for fault in started_again(tale):
            yield f"{fault}, after {way_of(tale)}"

    stage.none_broke(faults, wrong)


async def test_of_two_reschedules_of_a_running_task_the_second_one_counts(stage: Stage) -> None:
    """One half of the tasks is completed by its handlers, each time they end."""

    def completes(tale: Tale) -> bool:
        return tale.number % 4 < 2

    def act(stage: Stage, tale: Tale, run: Run) -> None:
        if completes(tale):
            stage.complete(run)

    async def move_again(tale: Tale) -> None:
        tale.due = time.time() + 1.6
        await stage.wish(tale, stage.quiet.reschedule, 1.6)
        await stage.moment(0.05, 0.1)
        stage.let_go(tale.runs[0])

    async with stage.opened(act):
        await stage.make_and_hold(quietly=False)
        await stage.each(lambda tale: stage.commit(stage.quiet.reschedule, tale.id, 1.0))
        await stage.carried()
        await stage.each(move_again)
        wrong = await stage.rest()
    rows, effects = stage.rows(), stage.effects()

    def faults(tale: Tale) -> Iterator[str]:
        again, which = tale.runs[1:], "that completes" if completes(tale) else "that returns"
        if any(run.began < tale.due - CLOCKS for run in again):
            yield f"ran at the first time, {which}"
        if not any(run.began >= tale.due - CLOCKS for run in again):
            yield f"did not run at the second time, {which}"
        if rows[tale.id].status != 10:
            yield f"ended with status {rows[tale.id].status}, {which}"
        if effects[tale.id] != completes(tale):
            yield f"had its effect {effects[tale.id]} times, {which}"

    stage.none_broke(faults, wrong)


async def test_a_reschedule_counts_that_is_committed_shortly_before_a_task_is_due(
    stage: Stage,
) -> None:
    async def move(tale: Tale) -> None:
        was_due = rows[tale.id].due / 1000
        await asyncio.sleep(max(was_due - 0.4 - time.time(), 0))
        tale.due = time.time() + 1.4
        await stage.wish(tale, stage.quiet.reschedule, 1.4)
        if tale.wish is not None and tale.wish > was_due - CLOCKS:
            tale.wish = None  # too late: its row may have been asked before

    async with stage.opened(lambda stage, _, run: stage.complete(run)):
        await stage.make(delay=lambda _: stage.chance.uniform(1.6, 2.6), retry=[])
        rows = await stage.ask(stage.rows)
        await stage.each(move)
        wrong = await stage.rest()
    rows, effects = stage.rows(), stage.effects()

    def faults(tale: Tale) -> Iterator[str]:
        if not tale.is_wished:
            return
        if any(run.began < tale.due - CLOCKS for run in tale.runs):
            yield "began at the old time"
        if not any(run.began >= tale.due - CLOCKS for run in tale.runs):
            yield "did not begin at the new time"
        if rows[tale.id].status != 10:
            yield f"ended with status {rows[tale.id].status}"
        if effects[tale.id] != 1:
            yield f"had its effect {effects[tale.id]} times"

    stage.none_broke(faults, wrong)


async def test_a_task_that_is_made_again_while_it_runs_is_another_one(stage: Stage) -> None:
    """It is replaced and cancelled, and two of three are made again: one half within a moment, the
    other half in steps, each of which is carried.
    """

    def last(tale: Tale) -> str:
        return "B" if tale.number % 3 == 1 else "C"

    async def make(ledger: Ledger, tale: Tale, word: str) -> None:
        options = {"id": tale.id, "if_exists": "replace", "retry": RETRIES}
        await stage.commit(ledger.make_task, tale.func, [word], 0, **options)

    async def make_again(ledger: Ledger, tale: Tale) -> None:
        if last(tale) == "C":
            await make(ledger, tale, "C")

    async def change(tale: Tale) -> None:
        await make(stage.quiet, tale, "B")
        await stage.commit(stage.quiet.cancel, tale.id)
        await make_again(stage.quiet, tale)
        await stage.moment(0, 0.1)
        if tale.number % 2:
            stage.let_go(tale.runs[0])

    async def in_steps(tales: list[Tale]) -> None:
        for step in (
            lambda tale: make(stage.poking, tale, "B"),
            lambda tale: stage.commit(stage.poking.cancel, tale.id),
            lambda tale: make_again(stage.poking, tale),
        ):
            await asyncio.gather(*map(step, tales))
            await stage.carried()

    async with stage.opened(lambda stage, _, run: stage.complete(run)):
        await stage.make_and_hold()
        await asyncio.gather(*map(change, stage.tales[: TASKS // 2]))
        await in_steps(stage.tales[TASKS // 2 :])
        await asyncio.sleep(0.3)  # what would begin now must not: the first one runs
        stage.let_go(*(tale.runs[0] for tale in stage.tales))
        before = await stage.rest()
        rows = stage.rows()
        began = {tale.id: len(tale.runs) for tale in stage.tales}
        answers = await stage.each(lambda tale: stage.ask(stage.bridge.run_now, tale.id))
        after = await stage.rest()

    def faults(tale: Tale) -> Iterator[str]:
        if any(earlier.ended is None or later.began < earlier.ended
               for earlier, later in zip(tale.runs, tale.runs[1:], strict=False)):  # fmt: skip
            yield "two handlers at once"
        if any(run.args != (last(tale),) for run in tale.runs[1:]):
            yield "ran with old arguments"
        if any(run.completed and run.args != (last(tale),) for run in tale.runs):
            yield "completed by an old run"
        if began[tale.id] != (2 if last(tale) == "C" else 1):
            yield f"began {began[tale.id]} times"
        if rows[tale.id].status != (10 if last(tale) == "C" else 30):
            yield f"ended with status {rows[tale.id].status}"
        if answers[tale.number] is Change.DUE_NOW and len(tale.runs) == began[tale.id]:
            yield "did not run once more"

    stage.none_broke(faults, before, after)


async def test_what_is_erased_does_not_run_and_what_runs_is_not_erased(stage: Stage) -> None:
    erased: dict[str, int] = {}

    def act(_: Stage, tale: Tale, run: Run) -> None:
        if 1 < len(tale.runs) < 4 and not run.kwargs:
            raise Retry(after=0.4)

    async def erase(tale: Tale) -> None:
        await _run_now(stage, tale)
        await stage.moment(0, 0.05)
        ledger = stage.quiet if tale.number < TASKS // 2 else stage.poking
        erased[tale.id] = await stage.commit(ledger.erase, tale.id)

    async with stage.opened(act):
        await stage.make()
        before = await stage.rest()
        for half in (stage.tales[: TASKS // 2], stage.tales[TASKS // 2 :]):
            await asyncio.gather(*map(erase, half))
            await stage.carried()
            for tale in half:
                tale.wish = time.time()
        after = await stage.rest()
    rows = stage.rows()

    def faults(tale: Tale) -> Iterator[str]:
        if any(run.kwargs for run in tale.runs):
            yield "ran with erased arguments"
        if erased[tale.id] and tale.begun_after((tale.wish or 0) + LATE):
            yield "started after it was erased"
        if erased[tale.id]:
            return
        if not any(run.args == ("A",) for run in tale.runs[1:]):
            yield "did not run although it was not erased"
        if rows[tale.id].params != '["A"]':
            yield "lost its arguments although it was not erased"

    stage.none_broke(faults, before, after)


async def test_what_was_completed_has_succeeded_whatever_its_handler_raises(stage: Stage) -> None:
    def act(stage: Stage, _: Tale, run: Run) -> None:
        stage.complete(run)
        raise ValueError("after the commit")

    async with stage.opened(act):
        await stage.make_and_hold(quietly=False, retry=[])
        stage.let_go(*(tale.runs[0] for tale in stage.tales))
        wrong = await stage.rest()
        states = await stage.each(lambda tale: stage.ask(stage.state_of, tale.id))
    rows, effects = stage.rows(), stage.effects()

    def faults(tale: Tale) -> Iterator[str]:
        if states[tale.number] is not State.SUCCEEDED or rows[tale.id].status != 10:
            yield "has not succeeded"
        if effects[tale.id] != 1:
            yield f"had its effect {effects[tale.id]} times"

    stage.none_broke(faults, wrong)


@contextmanager
def _hidden_rows(engine: Engine) -> Iterator[None]:
    """Let nobody else read rows meanwhile."""
    lock, unlock = LOCKS[engine.dialect.name]
    connection = engine.raw_connection()
    cursor = connection.cursor()
    cursor.execute(lock)
    try:
        yield
    finally:
        cursor.execute(unlock)
        cursor.close()
        connection.close()


async def test_a_coroutine_that_is_cancelled_about_its_claim_does_not_run_on(stage: Stage) -> None:
    """Of one half of the tasks, the rows cannot be read for a moment."""

    def delay(tale: Tale) -> float:
        return (0.5 if tale.number < TASKS // 2 else 0.9) + stage.chance.uniform(0, 0.1)

    async def cancel(tale: Tale, least: float, most: float) -> None:
        at = tale.due + stage.chance.uniform(least, most)
        await asyncio.sleep(max(at - time.time(), 0))
        if await stage.ask(stage.bridge.cancel, tale.id) is Change.CANCELLED:
            tale.wish = time.time()

    async with stage.opened():
        await stage.make(held=1, delay=delay, func="test.coroutine")
        rows = await stage.ask(stage.rows)
        for tale in stage.tales:
            tale.due = rows[tale.id].due / 1000
        hidden, others = stage.tales[: TASKS // 2], stage.tales[TASKS // 2 :]
        await asyncio.sleep(max(min(tale.due for tale in hidden) - 0.05 - time.time(), 0))
        with _hidden_rows(stage.engine):
            await asyncio.gather(*(cancel(tale, 0, 0.15) for tale in hidden))
        await asyncio.gather(*(cancel(tale, -0.01, 0.03) for tale in others))
        wrong = await stage.rest(within=5.0)
        began = time.monotonic()
    took = time.monotonic() - began

    def faults(tale: Tale) -> Iterator[str]:
        yield from started_again(tale)
        if any(run.ended is None for run in tale.runs):
            yield "runs on"

    stage.none_broke(faults, wrong)
    assert took < stage.settings.grace, f"its listeners took {took:.1f} s to stop"
