"""The tests of examples/orders pass on each database, and notice what is wrong with the shop."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "orders"))


def outcome_of(shop: Path, database_url: URL, *words: str) -> tuple[int, str]:
    """Run the shop's own tests; returns how that ended, and what it says."""
    surroundings = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "EXPIREBRIDGE_"))
    } | {"DATABASE_URL": database_url.render_as_string(hide_password=False)}
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "no:valkey", "-p", "no:cacheprovider",
            # Its three days are not waited for: that would take longer.
            "-W", "error", "--timeout", "300", "-vv", *words,
        ],
        cwd=shop, env=surroundings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.rest
def test_the_orders_pass_their_own_tests(shop: Path, database_url: URL) -> None:
    code, told = outcome_of(shop, database_url)
    assert code == 0, told
    assert "22 passed" in told
    assert len(re.findall(r"three_days_of_an_order\[.* PASSED", told)) == 2


@pytest.mark.parametrize(
    ("file", "right", "wrong", "test"),
    [
        (
            "orders.py",
            'ledger.cancel(session, f"remind-order-{order.id}")',
            "pass",
            "test_who_has_rated_is_not_reminded",
        ),
        (
            "orders.py",
            'ledger.make_task(session, "mails.confirm", [order.id], 0, ext=name)',
            "with engine.connect() as own, own.begin():\n"
            '        ledger.make_task(own, "mails.confirm", [order.id], 0, ext=name)',
            "test_an_order_that_fails_leaves_nothing_behind",
        ),
        (
            "orders.py",
            "    with session.begin_nested():\n        ledger.make_task",
            "    if True:\n        ledger.make_task",
            "test_a_voucher_that_was_used_is_not_thanked_for",
        ),
        (
            "tasks/mails.py",
            "current_task().complete_in(session)\n    orders",
            "orders",
            "fails_after_it",
        ),
        ("orders.py", 'cron="0 3 * * *"', 'cron="0 3 * * 1"', "test_orders_are_counted_each_night"),
    ],
    ids=["a reminder", "a transaction", "a savepoint", "a completion", "a night"],
)  # fmt: skip
def test_a_mistake_in_the_shop_is_noticed(
    file: str, right: str, wrong: str, test: str, shop: Path, database_url: URL
) -> None:
    """The test named fails, in each way in which it runs. Other databases would add nothing."""
    if database_url.get_backend_name() != "postgresql":
        pytest.skip("one database is enough")
    text = (shop / file).read_text()
    assert text.count(right) == 1
    (shop / file).write_text(text.replace(right, wrong))
    code, told = outcome_of(shop, database_url, "-k", test)
    assert code == 1, told
    assert "passed" not in told
    assert "failed" in told
