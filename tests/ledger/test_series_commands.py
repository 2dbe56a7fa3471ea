"""`expirebridge series` with a ledger: its series are seen and steered through SQL."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from expirebridge import Bridge
from expirebridge.errors import InvalidSetting, LedgerUnsuitable
from expirebridge.ledger import Ledger, Tables
from expirebridge.store.client import Store
from tests.kit.invoked import app
from tests.kit.ledgers import LedgerHarness


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store)


def series(*words: str, url: str, ledger: str = "") -> Result:
    env = {"EXPIREBRIDGE_URL": url, "EXPIREBRIDGE_LEDGER": ledger}
    return CliRunner().invoke(app, ["series", *words], env=env, catch_exceptions=False)


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def schedule(harness: LedgerHarness, ledger: Ledger, *ids: str) -> None:
    with harness.engine.begin() as connection:
        for id in ids:
            ledger.schedule(connection, id, "mail.send", [1], every="1h", tags=["a"])


def test_series_of_a_ledger_are_seen_and_steered(
    harness: LedgerHarness, ledger: Ledger, url: str
) -> None:
    schedule(harness, ledger, "tenant-7")

    def ask(*words: str) -> Any:
        done = series(*words, "--json", url=url, ledger=url_of(harness.engine))
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    shown = ask("show", "tenant-7")
    assert (shown["ledger"], shown["schedule"], shown["tags"]) == (True, "every 1h", ["a"])
    assert len(ask("next", "tenant-7", "-n", "3")) == 3
    assert ask("pause", "tenant-7") == {"id": "tenant-7", "outcome": "paused"}
    assert ask("show", "tenant-7")["paused"] is not None
    assert ask("resume", "tenant-7") == {"id": "tenant-7", "outcome": "resumed"}
    tick = ask("run", "tenant-7")["id"]
    assert harness.row(tick) is not None
    assert ask("remove", "tenant-7") == {"id": "tenant-7", "outcome": "removed"}
    assert ask("list")["series"] == []


def test_another_ledger_than_that_of_the_environment_is_named(
    harness: LedgerHarness, ledger: Ledger, url: str, tmp_path: Path
) -> None:
    schedule(harness, ledger, "tenant-7")
    words = ("pause", "tenant-7", "--ledger", url_of(harness.engine))
    done = series(*words, url=url, ledger=f"sqlite:///{tmp_path}/other.db")
    assert (done.exit_code, done.output) == (0, "tenant-7: paused\n")


def test_one_list_has_both_kinds(
    harness: LedgerHarness, ledger: Ledger, url: str, bridge: Bridge
) -> None:
    schedule(harness, ledger, "b", "d")
    bridge.schedule("a", "mail.send", every="30m")
    bridge.schedule("c", "mail.send", every="2h")
    listed = series("list", url=url, ledger=url_of(harness.engine))
    lines = [line.split() for line in listed.stdout.splitlines()]
    assert [line[:2] for line in lines] == [
        ["id", "in"], ["a", "redis"], ["b", "ledger"], ["d", "ledger"], ["c", "redis"],
    ]  # fmt: skip
    seen, cursor = [], ""
    while True:
        words = ("--cursor", cursor) if cursor else ()
        done = series(
            "list", "--limit", "1", "--json", *words, url=url, ledger=url_of(harness.engine)
        )
        page = json.loads(done.stdout)
        seen += [one["id"] for one in page["series"]]
        if (cursor := page["cursor"]) is None:
            break
    assert sorted(seen) == ["a", "b", "c", "d"]


def test_without_the_ledger_it_is_said_what_to_do(
    harness: LedgerHarness, ledger: Ledger, url: str, bridge: Bridge
) -> None:
    schedule(harness, ledger, "tenant-7")
    bridge.schedule("a", "mail.send", every="30m")
    done = series("pause", "tenant-7", url=url)
    assert (done.exit_code, done.stderr) == (3, "expirebridge: series 'tenant-7': not found\n")
    harness.settle_down()  # from now on Redis knows that it has a ledger
    done = series("pause", "tenant-7", url=url)
    assert (done.exit_code, done.stderr) == (
        3,
        "expirebridge: series 'tenant-7': not found in Redis; if it is of the ledger, give "
        "--ledger, or set EXPIREBRIDGE_LEDGER\n",
    )
    listed = series("list", url=url)
    assert "(without the series of the ledger: give --ledger" in listed.stderr
    assert "tenant-7" not in listed.stdout
    assert series("pause", "a", url=url).stdout == "a: paused\n"


def test_series_of_redis_are_steered_with_a_ledger_too(
    harness: LedgerHarness, ledger: Ledger, url: str, bridge: Bridge
) -> None:
    bridge.schedule("a", "mail.send", every="30m")
    for words, said in (("pause", "paused"), ("resume", "resumed"), ("remove", "removed")):
        done = series(words, "a", url=url, ledger=url_of(harness.engine))
        assert done.stdout == f"a: {said}\n"
    done = series("remove", "a", url=url, ledger=url_of(harness.engine))
    assert (done.exit_code, done.stderr) == (3, "expirebridge: series 'a': not found\n")


def test_what_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="others on this machine"):
        series("list", "--ledger", "postgresql://me:secret@host/db", url=url)
    with pytest.raises(LedgerUnsuitable, match="no table"):
        series("list", url=url, ledger="sqlite://")
