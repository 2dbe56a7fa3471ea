"""`compat` looks at rows that Redis does not have yet."""

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from expirebridge.errors import InvalidSetting
from expirebridge.ledger import Tables
from expirebridge.store.client import Store
from tests.kit.invoked import app
from tests.kit.ledgers import LedgerHarness

HOUR = 3_600_000


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compared")
    tasks = made / f"rows_of_{made.name}"  # one name, one module; this fixture may be made again
    tasks.mkdir()
    (tasks / "mail.py").write_text("def send(to): ...\n")
    return tasks


def compat(
    harness: LedgerHarness, folder: Path, url: str, *words: str
) -> tuple[int, dict[str, object]]:
    shown = harness.engine.url.render_as_string(hide_password=False)
    result = CliRunner().invoke(
        app, ["compat", "--tasks", str(folder), "--json", *words],
        env={"EXPIREBRIDGE_URL": url, "EXPIREBRIDGE_LEDGER": shown}, catch_exceptions=False,
    )  # fmt: skip
    return result.exit_code, json.loads(result.stdout)


def test_rows_that_were_not_relayed_are_compared(
    harness: LedgerHarness, folder: Path, url: str
) -> None:
    harness.insert("relayed", HOUR)
    harness.settle_down()
    harness.insert("fits", HOUR)
    assert compat(harness, folder, url)[0] == 0
    harness.insert("renamed", HOUR, func="mail.welcome")
    harness.insert("cancelled", HOUR, func="mail.farewell")
    harness.cancel("cancelled")
    code, found = compat(harness, folder, url)
    assert (code, found["compared"], found["failing"]) == (3, 3, 1)


def test_a_new_life_that_was_not_relayed_is_compared(
    harness: LedgerHarness, folder: Path, url: str
) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    harness.change("a", func="mail.welcome", generation=harness.row("a").generation + 1, due=None)
    code, found = compat(harness, folder, url)
    assert (code, found["failing"]) == (3, 1)


@pytest.mark.parametrize(("decided", "code"), [(None, 3), ("deadline", 0)])
def test_what_a_signal_would_run_counts_until_the_row_is_decided(
    harness: LedgerHarness, folder: Path, url: str, decided: str | None, code: int
) -> None:
    harness.insert("a", HOUR, options='{"on_signal":"mail.welcome"}', decided=decided)
    exit_code, found = compat(harness, folder, url)
    assert (exit_code, found["compared"]) == (code, 1)


def test_only_what_is_due_in_time_is_compared(
    harness: LedgerHarness, folder: Path, url: str
) -> None:
    harness.insert("later", 3 * HOUR, func="mail.welcome")
    code, found = compat(harness, folder, url, "--due-within", "1h")
    assert (code, found["compared"]) == (0, 0)
    assert found["left_out"] == {"later": 1, "paused": 0}


def test_rows_that_are_kept_back_are_compared(
    engine: Engine, made: Tables, store: Store, folder: Path, url: str
) -> None:
    """Their functions must be there once they come near."""
    harness = LedgerHarness(engine, made, store, horizon=3600.0)
    harness.insert("far", 24 * HOUR, func="mail.welcome")
    harness.insert("moved", 24 * HOUR, func="mail.welcome")
    harness.change("moved", due=None, delay_ms=48 * HOUR)
    harness.settle_down()
    assert harness.row("far").stamp == 0
    code, found = compat(harness, folder, url)
    assert (code, found["compared"], found["failing"]) == (3, 2, 2)
    code, found = compat(harness, folder, url, "--due-within", "36h")
    assert (code, found["failing"], found["left_out"]) == (3, 1, {"later": 1, "paused": 0})
    code, found = compat(harness, folder, url, "--due-within", "1h")
    assert (code, found["compared"], found["left_out"]) == (0, 0, {"later": 2, "paused": 0})


def test_a_password_on_the_command_line_is_refused(
    harness: LedgerHarness, folder: Path, url: str
) -> None:
    result = CliRunner().invoke(
        app, ["compat", "--tasks", str(folder), "--ledger", "postgresql://a:b@localhost/c"],
        env={"EXPIREBRIDGE_URL": url},
    )  # fmt: skip
    assert isinstance(result.exception, InvalidSetting)
    assert "EXPIREBRIDGE_LEDGER" in str(result.exception)
