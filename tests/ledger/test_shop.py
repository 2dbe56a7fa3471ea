"""The shop's orders, each in one transaction with its task, on each database."""

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import URL, create_engine, text

from expirebridge.ledger import Tables

SHOP = Path(__file__).parents[2] / "examples" / "shop"


def test_orders_and_their_tasks_are_one_transaction(database_url: URL, made: Tables) -> None:
    shown = database_url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-m", "shop.sales"], cwd=SHOP, capture_output=True, text=True, check=False,
        env=os.environ | {"EXPIREBRIDGE_LEDGER": shown, "EXPIREBRIDGE_TASKS": "shop/tasks"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ann: orders.rate, wanted: none\nbob: orders.rate, wanted: cancelled\n2 orders\n"
    )
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
    assert {row.delay_ms for row in rows} == {72 * 3_600_000}
