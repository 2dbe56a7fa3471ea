"""The database in numbers, from the terminal: stats, top, forecast and list --watch."""

import json
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, InvalidTask, LateCause, Lateness
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.lateness import calls as forecasting
from expirebridge.settings import Settings
from expirebridge.store import acl
from expirebridge.store.acl import LoginRole
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.objective import Objective
from tests.kit.interrupts import ignoring
from tests.kit.invoked import end_due_tasks, invoke, invoke_json, run
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND
from tests.kit.steps import settle
from tests.kit.waiting import park


@pytest.fixture
def busy(bridge: Bridge, store: Store) -> None:
    """Three tasks succeeded, two failed, one runs, two wait and one is overdue."""
    for n in range(3):
        bridge.make_task("mail.send", [n], 0)
    end_due_tasks(store, "succeeded", "")
    for n in range(2):
        bridge.make_task("orders.rate", [n], 0)
    end_due_tasks(store)
    bridge.make_task("mail.send", ["works"], 0, id="at-work")
    assert store.run(claiming.claim("t", Settings(), places=1, idle=True)).tasks
    bridge.make_task("mail.send", ["waits"], "1h", id="waits")
    bridge.make_task("mail.send", ["late"], 0, id="late")


@pytest.mark.usefixtures("busy")
def test_stats_tell_states_and_how_each_function_did(url: str) -> None:
    shown = invoke_json("stats", url=url)
    assert shown["states"] == {
        "pending": 2, "waiting": 0, "paused": 0, "running": 1, "succeeded": 3, "failed": 2,
        "cancelled": 0, "overdue": 1, "listeners": 0,
    }  # fmt: skip
    assert shown["running"] == ["at-work"]
    assert shown["oldest_overdue"] >= 0
    assert shown["ended_per_minute"] == 5
    mail, orders = shown["functions"]["mail.send"], shown["functions"]["orders.rate"]
    assert (mail["succeeded"], mail["failed"]) == (3, 0)
    assert (orders["succeeded"], orders["failed"], orders["lateness"]) == (0, 2, None)
    assert 0 <= shown["lateness"]["p50"] <= shown["lateness"]["p99"] == mail["lateness"]
    text = invoke("stats", url=url)
    assert "pending 2   waiting 0   paused 0   running 1   succeeded 3   failed 2" in text
    assert "overdue 1, the first for " in text
    assert "\x1b" not in text
    totals, _, recent = text.partition("the last 200 that succeeded, and the last 200 that failed:")
    assert totals.startswith("all tasks:\n")
    assert "ended" not in totals
    assert "ended 5 a minute" in recent
    assert "orders.rate" in recent


def test_the_causes_of_late_tasks_are_summed(bridge: Bridge, store: Store, url: str) -> None:
    assert invoke_json("stats", url=url)["late_last_hour"] == {}
    late = [Lateness(90, LateCause.NO_ROOM), Lateness(0.5, LateCause.LIMIT), None]
    for number, one in enumerate(late):
        bridge.make_task("mail.send", [number], 0, id=str(number))
        store.run(claiming.claim("t", Settings(), places=1, idle=True))
        settle(store, Settlement(str(number), "t", "succeeded", late=one))
    shown = invoke_json("stats", url=url)
    assert shown["late_last_hour"] == {"no-room": 90, "limit": 0.5}
    text = invoke("stats", url=url)
    assert "tasks that began late in the last hour, by so much in all:" in text
    assert re.search(r"^no room in the listeners +1m 30s$", text, re.MULTILINE)
    assert "late: no room in the listeners" in invoke("show", "0", url=url)
    task = invoke_json("show", "0", url=url)
    assert task["late"] == {"seconds": 90, "cause": "no-room"}


def test_how_functions_kept_to_their_objectives(bridge: Bridge, store: Store, url: str) -> None:
    assert invoke_json("stats", url=url)["objectives"] == []
    kept, missed = Objective(1.5, is_kept=True), Objective(1.5, is_kept=False)
    late = Lateness(90, LateCause.NO_ROOM)
    for number, one in enumerate([kept, kept, kept, missed]):
        bridge.make_task("mail.send", [number], 0, id=str(number))
        store.run(claiming.claim("t", Settings(), places=1, idle=True))
        settlement = Settlement(str(number), "t", "succeeded", objective=one)
        settle(store, settlement if one is kept else settlement._replace(late=late))
    shown = invoke_json("stats", url=url)
    [found] = shown["objectives"]
    burnt = found.pop("burn_rate")
    assert found == {
        "func": "mail.send", "seconds": 1.5, "within": 3, "over": 1, "share": 0.75
    }  # fmt: skip
    assert burnt == pytest.approx(25)
    assert shown["late_last_hour"] == {"no-room": 90}
    text = invoke("stats", url=url)
    assert "objectives in the last hour, 99% of the tasks are to keep to them:" in text
    assert re.search(r"^mail\.send +1\.5 s +4 +75\.00% +25\.0$", text, re.MULTILINE), text


def test_nobody_is_late_while_it_waits_for_a_slot(
    bridge: Bridge, store: Store, client: redis.Redis, url: str
) -> None:
    task = bridge.make_task("mail.send", [1], 0)
    end_due_tasks(store, "succeeded", "")
    record = f"expirebridge:task:{task.id}"
    client.hincrby(record, "due", -60_000)
    client.hset(record, "waited", 59_000)
    assert 1 <= invoke_json("stats", url=url)["lateness"]["p99"] < 30


@pytest.mark.usefixtures("busy")
def test_top_in_a_pipe_is_one_picture_without_colours(url: str) -> None:
    result = run("top", url=url)
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    for part in ("running now", "next due", "failed last", "listeners", "at-work", "boom", "waits"):
        assert result.stdout.count(part) >= 1, part
    assert invoke_json("top", url=url)["states"]["pending"] == 2


@contextmanager
def on_a_terminal(*words: str, url: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command whose output is a terminal; its end, and the file on which it is read."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env=os.environ | {"EXPIREBRIDGE_URL": url, "TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def until_shown(word: bytes, terminal: int) -> None:
    shown = b""
    while word not in shown:
        ready, _, _ = select.select([terminal], [], [], PATIENCE)
        assert ready, shown
        shown += os.read(terminal, 65536)


@pytest.mark.parametrize(
    "words",
    [
        ("top",),
        pytest.param(("list", "--watch", "--state", "pending"), marks=pytest.mark.rest),
    ],
)
def test_on_a_terminal_it_is_shown_anew_until_ctrl_c(
    url: str, bridge: Bridge, words: tuple[str, ...]
) -> None:
    bridge.make_task("mail.send", [], "1h", id="the-first")
    with on_a_terminal(*words, "--every", "50ms", url=url) as (process, terminal):
        until_shown(b"the-first", terminal)
        bridge.make_task("mail.send", [], "1h", id="the-second")
        until_shown(b"the-second", terminal)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_ctrl_c_ends_what_was_started_in_the_background(url: str, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [], "1h", id="the-first")
    with ExitStack() as stack:
        with ignoring():
            shown = stack.enter_context(on_a_terminal("top", "--every", "50ms", url=url))
        process, terminal = shown
        until_shown(b"the-first", terminal)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_it_goes_on_while_the_server_is_away() -> None:
    with EmbeddedServer() as own, Bridge(own.url) as bridge:
        bridge.make_task("mail.send", [], "1h", id="the-first")
        with on_a_terminal("top", "--every", "50ms", url=own.url) as (process, terminal):
            until_shown(b"the-first", terminal)
            own.kill()
            until_shown(b"no answer from the server", terminal)
            own.start()
            until_shown(b"pending", terminal)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0


def test_a_dashboard_s_login_sees_and_a_producer_s_imports(
    url: str, bridge: Bridge, store: Store, client: redis.Redis, tmp_path: Path
) -> None:
    is_6 = client.info("server")["redis_version"].startswith("6.")
    client.execute_command("ACL", "LOG", "RESET")
    logins = {}
    for role in (LoginRole.PRODUCER, LoginRole.DASHBOARD):
        line = acl.line(role, prefix="expirebridge", database=1, conf=False, redis_6=is_6)
        client.execute_command(*line.replace("PASSWORD", "secret").split())
        logins[role] = url.replace("//", f"//expirebridge-{role}:secret@")
    try:
        bridge.make_task("mail.send", [], 0)
        end_due_tasks(store)
        bridge.make_task("mail.send", [], "1h", id="a")
        for command in ("stats", "top", "forecast", "list"):
            invoke(command, url=logins[LoginRole.DASHBOARD])
        file = tmp_path / "tasks"
        for role, login in logins.items():
            invoke("export", str(file), url=login)
            assert file.read_bytes().count(b"\n") == 1, role
        assert invoke_json("import", str(file), url=logins[LoginRole.PRODUCER]) == {
            "created": 0, "kept": 1
        }  # fmt: skip
        for verb, told in (("purge", "forgotten  1\n"), ("retry", "due now  1\n")):
            assert invoke("failed", verb, "--yes", url=logins[LoginRole.DASHBOARD]) == told
        assert client.execute_command("ACL", "LOG") == []
    finally:
        for role in logins:
            client.execute_command("ACL", "DELUSER", f"expirebridge-{role}")


def test_a_forecast_counts_what_comes_due(
    url: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    # In the middle of their spans, so that no delay moves one into another.
    bridge.make_tasks(
        [{"func": "mail.send", "delay": 90} for _ in range(300)]
        + [{"func": "orders.rate", "delay": 90} for _ in range(100)]
        + [{"func": "orders.rate", "delay": 270}, {"func": "orders.rate", "delay": 3600}]
    )
    bridge.make_task("mail.send", [], 0)
    for id in ("held-1", "held-2"):
        bridge.make_task("mail.send", [], 60, id=id)
        park(client, id, "hold func mail.send")
    shown = invoke_json("forecast", "--per", "3m", "--for", "6m", url=url)
    assert [span["count"] for span in shown["spans"]] == [400, 1]
    assert (shown["overdue"], shown["waiting"], shown["later"]) == (1, 2, 1)
    assert shown["spans"][0]["functions"].keys() == {"mail.send", "orders.rate"}
    assert sum(shown["spans"][0]["functions"].values()) == pytest.approx(400, abs=2)
    assert shown["spans"][1]["functions"] == {"orders.rate": 1}
    exact = store.run(forecasting.forecast(180, 2, sample=400)).spans[0].sample
    assert exact == {"mail.send": 300, "orders.rate": 100}
    text = invoke("forecast", "--per", "3m", "--for", "6m", url=url)
    assert text.splitlines()[1].split()[1:4] == ["now", "400", "█" * 40]
    assert text.splitlines()[2].split()[1:] == ["3m", "1", "█", "orders.rate", "1"]
    assert text.endswith("overdue 1, waiting 2, later 1\n")


def test_a_forecast_of_nothing_has_no_bars(url: str) -> None:
    text = invoke("forecast", url=url)
    assert "█" not in text
    assert json.loads(invoke("forecast", "--json", url=url))["spans"][23]["count"] == 0


@pytest.mark.parametrize(
    "words", [("--per", "0s"), ("--per", "1s", "--for", "1h"), ("--for", "0s"), ("--per", "x")]
)
def test_a_forecast_has_a_bar_at_least_and_not_too_many(url: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidTask):
        invoke("forecast", *words, url=url)
