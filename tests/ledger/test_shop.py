"""The shop's orders, each in one transaction with its task, on each database."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, text

from expirebridge import Bridge, State
from expirebridge.ledger import Tables
from expirebridge.ledger.rows import Status
from tests.kit.databases import Database
from tests.kit.patience import PATIENCE
from tests.kit.processes import launched

SHOP = Path(__file__).parents[2] / "examples" / "shop"
THREE_DAYS = 72 * 3_600_000
LEFT = 1500
"""Milliseconds that are left of the three days when the listener starts."""


@pytest.fixture(scope="module")
def database_url(shared_database: Database) -> URL:
    """What the shop's program sells: ann keeps her order, bob returns his, cleo cannot pay."""
    database_url = shared_database.new_database()
    shown = database_url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-m", "shop.sales"], cwd=SHOP, capture_output=True, text=True, check=False,
        env=os.environ | {"EXPIREBRIDGE_LEDGER": shown, "EXPIREBRIDGE_TASKS": "shop/tasks"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ann: orders.rate, wanted: none\nbob: orders.rate, wanted: cancelled\n2 orders\n"
    )
    return database_url


@pytest.mark.rest
def test_orders_and_their_tasks_are_one_transaction(database_url: URL, made: Tables) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        orders = connection.execute(text("SELECT id, customer, returned FROM orders ORDER BY id"))
        [ann, bob] = orders.all()
        rows = connection.execute(made.task.select().order_by(made.task.c.ext_string)).all()
    engine.dispose()
    assert [(row.ext_string, row.params, row.wanted) for row in rows] == [
        (f"order-{ann.id}", f'["ann",{ann.id}]', "none"),
        (f"order-{bob.id}", f'["bob",{bob.id}]', "cancelled"),
    ]
    assert [bool(one.returned) for one in (ann, bob)] == [False, True]
    assert {row.delay_ms for row in rows} == {THREE_DAYS}


def statuses(engine: Engine, made: Tables) -> list[int]:
    """Those of ann's task and of bob's."""
    task = made.task.c
    with engine.connect() as connection:
        rows = connection.execute(made.task.select().order_by(task.ext_string)).all()
    return [row.status for row in rows]


def test_an_order_asks_for_its_rating_after_three_days(
    database_url: URL, made: Tables, url: str, bridge: Bridge, tmp_path: Path
) -> None:
    engine, task = create_engine(database_url), made.task.c
    ended = [Status.SUCCEEDED, Status.CANCELLED]
    with engine.begin() as connection:  # three days ago, but for a moment
        connection.execute(made.task.update().values(written=task.written - THREE_DAYS + LEFT))
        [ann, bob] = connection.execute(made.task.select().order_by(task.ext_string)).all()
    shown = database_url.render_as_string(hide_password=False)
    shop = shutil.copytree(SHOP / "shop", tmp_path / "shop")
    env = {"EXPIREBRIDGE_LEDGER": shown, "PYTHONPATH": str(tmp_path)}
    with launched(url, shop / "tasks", **env) as listener:
        deadline = time.monotonic() + PATIENCE
        while statuses(engine, made) != ended:
            assert listener.poll() is None, "the listener ended"
            assert time.monotonic() < deadline, statuses(engine, made)
            time.sleep(0.02)
    engine.dispose()
    rated, returned = bridge.get(ann.id), bridge.get(bob.id)
    assert rated is not None
    assert returned is not None
    assert (rated.state, returned.state) == (State.SUCCEEDED, State.CANCELLED)
    assert (rated.result, returned.attempt) == ("Dear Ann, please rate order 1", 0)
    began = rated.history[-1].started
    assert began is not None
    assert began >= rated.due
    assert rated.due.timestamp() * 1000 >= ann.written + THREE_DAYS - 2  # SQLite's own clock
