"""What a Bridge, commands and pages without SQL say of tasks that a ledger keeps back."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from expirebridge import AsyncBridge, Bridge, Change
from expirebridge.cli.ending import NOT_POSSIBLE
from tests.kit.invoked import invoke, invoke_json, run
from tests.kit.ledgers import LedgerHarness

pytestmark = pytest.mark.one_database

HOUR = 3_600_000
FORGOTTEN = "it was never made, or has ended and was forgotten"
KEPT_BACK = (
    f"{FORGOTTEN}; or it is due in more than 1h, and its row is kept back in SQL: ledger.get finds "
    "it there, ledger.cancel and the like change it"
)
ELSEWHERE = (
    "rows of the ledger that are kept back in SQL, since they are due in more than 1h, are not "
    "among these tasks"
)


@pytest.fixture
def harness(harness: LedgerHarness) -> LedgerHarness:
    """A ledger with a row that is kept back, and one that is near."""
    found = LedgerHarness(
        harness.engine, harness.made, harness.store, place=harness.place, horizon=3600.0
    )
    for id, delay in (("far", 3 * HOUR), ("near", HOUR // 2)):
        found.insert(id, delay, options='{"tags": ["shop"]}')
    found.settle_down()
    return found


@pytest.mark.usefixtures("harness")
async def test_a_bridge_says_why_it_does_not_find_a_task(bridge: Bridge, url: str) -> None:
    changes: list[Callable[[str], Change]] = [
        bridge.cancel, bridge.run_now, bridge.pause, bridge.resume, bridge.signal,
        partial(bridge.reschedule, delay="1h"), partial(bridge.put_off, by="1h"),
        partial(bridge.edit, args=[1]),
    ]  # fmt: skip
    assert [change("far") for change in changes] == [Change.NOT_FOUND] * len(changes)
    assert bridge.get("far") is None
    assert bridge.why("far") is None
    assert bridge.why_absent("far") == KEPT_BACK
    async with AsyncBridge(url) as awaited:
        assert await awaited.why_absent("far") == KEPT_BACK


def test_without_a_horizon_nothing_is_elsewhere(bridge: Bridge, url: str) -> None:
    assert bridge.why_absent("a") == FORGOTTEN
    done = run("cancel", "--tag", "shop", "--yes", url=url)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("harness")
@pytest.mark.parametrize(
    "words",
    [
        ("cancel", "far"), ("run", "far"), ("pause", "far"), ("resume", "far"), ("signal", "far"),
        ("reschedule", "far", "--in", "1h"), ("put-off", "far", "--by", "1h"),
        ("edit", "far", "--args", "[1]"), ("beat", "far"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_says_where_a_task_may_be(words: tuple[str, ...], url: str) -> None:
    done = run(*words, url=url)
    assert done.returncode == NOT_POSSIBLE
    assert done.stderr == f"expirebridge: task 'far': not found: {KEPT_BACK}\n"


@pytest.mark.usefixtures("harness")
@pytest.mark.parametrize("word", ["show", "why"])
def test_a_command_that_looks_says_so_too(word: str, url: str) -> None:
    done = run(word, "far", url=url)
    assert (done.returncode, done.stdout) == (NOT_POSSIBLE, "")
    assert done.stderr == f"expirebridge: there is no task 'far': {KEPT_BACK}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("pause", "--tag", "shop"), ("resume", "--tag", "shop"),
        ("put-off", "--tag", "shop", "--by", "1h"), ("cancel", "--tag", "shop", "--yes"),
        ("cancel", "--func", "mail.send", "--yes"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_change_by_a_tag_says_that_rows_are_not_among_its_tasks(
    words: tuple[str, ...], harness: LedgerHarness, url: str
) -> None:
    done = run(*words, url=url)
    assert done.returncode == 0
    assert done.stderr == f"expirebridge: {ELSEWHERE}\n"
    assert harness.row("far").wanted == "none"
    assert harness.row("far").stamp == 0


@pytest.mark.usefixtures("harness")
def test_json_is_as_without_a_horizon(url: str) -> None:
    assert invoke_json("cancel", "--tag", "shop", "--yes", url=url) == {
        "cancelled": 1,
        "running": 0,
    }
    assert "near" in invoke("show", "near", url=url)


@pytest.mark.usefixtures("harness")
def test_an_export_and_a_forecast_beyond_the_horizon_say_so_too(url: str, tmp_path: Path) -> None:
    assert run("export", str(tmp_path / "tasks.ndjson"), url=url).stderr.splitlines() == [
        f"expirebridge: {ELSEWHERE}"
    ]
    assert run("forecast", "--for", "1h", url=url).stderr == ""
    further = run("forecast", "--for", "2h", "--json", url=url)
    assert further.stderr == f"expirebridge: {ELSEWHERE}\n"
    assert sum(span["count"] for span in json.loads(further.stdout)["spans"]) == 1
