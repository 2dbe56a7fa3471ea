"""The gate before a deploy: `expirebridge compat`, with folders of two versions."""

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge
from tests.kit import processes
from tests.kit.invoked import run
from tests.kit.modules import as_if_new
from tests.kit.processes import ROOT
from tests.kit.steps import server_ms

OLD = """
def send(to, subject): ...
def welcome(to): ...
"""
NEW = """
import functools
def send(to, *, subject, urgent=False): ...
def greet(to): ...
def gather(*items): ...
def _logged(function):
    @functools.wraps(function)
    def wrapper(*args): return function(*args)
    return wrapper
@_logged
def note(text): ...
"""


def folder_of(version: Path, source: str) -> Path:
    folder = version / "tasks"
    folder.mkdir(parents=True)
    (folder / "mail.py").write_text(source)
    return folder


def compat(tasks: Path, *words: str, url: str) -> subprocess.CompletedProcess[str]:
    """The command, which finds no other version of the folder imported."""
    with as_if_new(tasks.absolute().parent):
        return run("compat", "--tasks", tasks, *words, url=url)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "old", OLD)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "new", NEW)


@pytest.fixture
def made(bridge: Bridge) -> Bridge:
    bridge.make_task("mail.send", [1, "hi"], "3h", id="positional-1")
    bridge.make_task("mail.send", [2, "hi"], "2h", id="positional-2")
    bridge.make_task("mail.send", [3], "1h", kwargs={"subject": "hi"}, id="named")
    bridge.make_task("mail.welcome", [4], "8d", id="renamed")
    return bridge


def test_the_code_that_made_the_tasks_passes(made: Bridge, old: Path, url: str) -> None:
    result = compat(old, url=url)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        f"tasks 4   would fail 0   handlers 2 in {old}\n"
        "- not compared: types and values of arguments\n"
    )


def test_other_code_is_refused_with_what_would_fail(made: Bridge, fresh: Path, url: str) -> None:
    result = processes.run("compat", "--tasks", fresh, url=url)
    assert (result.returncode, result.stderr) == (3, "")
    first, second, rest = result.stdout.split("\n\n")
    assert first.startswith("2 of mail.send(..., ...), first due ")
    assert "(in 1h 59m)" in first or "(in 2h)" in first
    assert first.splitlines()[1:] == [
        "    mail.send(to, *, subject, urgent=...): too many positional arguments",
        "    such as positional-2, positional-1",
    ]
    assert second.startswith("1 of mail.welcome(...), first due ")
    assert second.splitlines()[1] == "    no handler has this name (did you mean 'mail.note'?)"
    assert rest.startswith(f"tasks 4   would fail 3   handlers 4 in {fresh}\n")


def test_a_signal_for_which_no_handler_is_there_is_named(
    bridge: Bridge, fresh: Path, url: str
) -> None:
    bridge.make_task("mail.greet", ["ann"], "1h", id="a", on_signal="mail.great")
    result = compat(fresh, url=url)
    assert result.returncode == 3
    first, second, *_ = result.stdout.splitlines()
    assert first.startswith("1 of mail.greet(...), or mail.great on a signal, first due ")
    assert second == (
        "    on a signal: mail.great: no handler has this name (did you mean 'mail.greet'?)"
    )


def test_only_what_is_due_soon_can_be_asked_for(made: Bridge, fresh: Path, url: str) -> None:
    made.pause("named")
    result = compat(fresh, "--due-within", "7d", url=url)
    assert result.returncode == 3
    assert "mail.welcome" not in result.stdout
    assert "- not compared: 1 due later\n" in result.stdout
    assert "- not compared: 1 paused, without a due time\n" in result.stdout
    made.cancel_all(["positional-1", "positional-2"])
    assert compat(fresh, "--due-within", "7d", url=url).returncode == 0


def test_what_cannot_be_seen_is_said(bridge: Bridge, fresh: Path, url: str) -> None:
    bridge.make_task("mail.gather", [1], "1h")
    bridge.make_task("mail.note", ["x"], "1h")
    result = compat(fresh, url=url)
    assert result.returncode == 0
    assert result.stdout.splitlines()[1:] == [
        "- not compared: types and values of arguments",
        "- may fail all the same: 1 of mail.gather (*args or **kwargs)",
        "- may fail all the same: 1 of mail.note (a wrapper, compared by what it wraps)",
    ]


def test_json_has_the_same_facts_in_one_document(
    made: Bridge, fresh: Path, url: str, client: redis.Redis
) -> None:
    made.make_task("mail.gather", [], "1h", id="open")
    client.hset("expirebridge:task:named", "call", "mail.send?{")
    result = compat(fresh, "--due-within", "7d", "--json", url=url)
    assert (result.returncode, result.stderr) == (3, "")
    found: dict[str, Any] = json.loads(result.stdout)
    groups = found.pop("groups")
    assert found == {
        "ok": False, "compared": 4, "failing": 3,
        "blind_spots": [
            {"reason": "*args or **kwargs", "functions": ["mail.gather"], "count": 1}
        ],
        "left_out": {"later": 1, "paused": 0},
    }  # fmt: skip
    dues = [datetime.fromisoformat(group.pop("first_due")).timestamp() for group in groups]
    assert [round((due - server_ms(client) / 1000) / 60) for due in dues] == [60, 120, 60]
    assert groups == [
        {
            "verdict": "arguments unreadable", "function": "mail.send", "on_signal": None,
            "positional": None, "keywords": None, "count": 1,
            "reason": "its arguments cannot be read",
            "ids": ["named"],
        },
        {
            "verdict": "arguments do not fit", "function": "mail.send", "on_signal": None,
            "positional": 2, "keywords": [], "count": 2, "ids": ["positional-2", "positional-1"],
            "reason": "mail.send(to, *, subject, urgent=...): too many positional arguments",
        },
        {
            "verdict": "fits", "function": "mail.gather", "on_signal": None, "positional": 0,
            "keywords": [], "reason": "", "count": 1, "ids": ["open"],
        },
    ]  # fmt: skip


def test_failed_tasks_can_be_compared_too(
    bridge: Bridge, client: redis.Redis, fresh: Path, url: str
) -> None:
    client.hset("expirebridge:task:a", mapping={"call": "gone.away?[]", "state": "failed"})
    client.zadd("expirebridge:failed", {"a": server_ms(client) + 60_000})
    assert compat(fresh, url=url).returncode == 0
    result = compat(fresh, "--failed", url=url)
    assert result.returncode == 3
    assert "1 of gone.away(), no due time\n" in result.stdout


def test_what_other_clients_wrote_does_not_control_the_terminal(
    client: redis.Redis, fresh: Path, url: str
) -> None:
    client.hset("expirebridge:task:\x1b[2J", "call", b'\x1b[2J.\xff?{"\x1b": 1}')
    client.zadd("expirebridge:pending", {"\x1b[2J": 1})
    result = compat(fresh, url=url)
    assert result.returncode == 3
    assert "\x1b" not in result.stdout
    assert "1 of \\x1b[2J" in result.stdout


def test_many_groups_that_would_fail_are_cut_short(bridge: Bridge, fresh: Path, url: str) -> None:
    bridge.make_tasks(
        {"func": f"gone.away_{n}", "args": list(range(n)), "delay": 3600} for n in range(22)
    )
    result = compat(fresh, url=url)
    assert result.stdout.count("no handler has this name") == 20
    assert "\nand 2 more groups: --json lists all\n" in result.stdout


BAD_CALLS = [
    pytest.param({}, ["--tasks", "missing"], 1, "missing does not exist", id="no folder"),
    pytest.param({"mail.py": "1 / 0"}, [], 1, "ZeroDivisionError", id="import fails"),
    pytest.param({}, ["--due-within", "soon"], 2, "'soon': not a duration", id="word"),
    pytest.param({}, ["--due-within", "-1d"], 2, "cannot be negative", id="negative"),
    pytest.param({}, ["--due-within", ""], 2, "'': not a duration", id="empty"),
]


@pytest.mark.parametrize(("files", "words", "code", "said"), BAD_CALLS)
def test_bad_input_is_refused(
    tmp_path: Path, url: str, files: dict[str, str], words: list[str], code: int, said: str
) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name, source in files.items():
        (folder / name).write_text(source)
    result = compat(folder, *words, url=url)
    assert (result.returncode, result.stdout) == (code, "")
    assert said in result.stderr


def test_a_renamed_function_fits_by_its_alias_and_a_helper_may_be_left_out(
    bridge: Bridge, tmp_path: Path, url: str
) -> None:
    aliased = (
        "from expirebridge import handler\n@handler(aliases=['mail.old'])\ndef send(to): ...\n"
    )
    folder = folder_of(tmp_path / "next", aliased + "def helper(): ...")
    bridge.make_task("mail.old", [1], "1h")
    bridge.make_task("mail.helper", [], "1h")
    assert compat(folder, url=url).returncode == 0
    narrowed = compat(folder, "--only-marked", url=url)
    assert narrowed.returncode == 3
    assert "tasks 2   would fail 1" in narrowed.stdout


def test_the_page_shows_what_is_printed(
    bridge: Bridge, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "how-to" / "change-handlers.md").read_text()
    [code] = re.findall(r"```python\n(# new/tasks/mail.py\n.*?)```", page, re.DOTALL)
    [shown] = re.findall(r"\$ expirebridge compat --tasks new/tasks\n(.*?)\$ echo", page, re.DOTALL)
    folder_of(tmp_path / "new", code)
    bridge.make_task("mail.send", [1, "hi"], "3h", id="reminder-1")
    bridge.make_task("mail.send", [2, "hi"], "2h", id="reminder-2")
    bridge.make_task("mail.send", [3], "1h", kwargs={"subject": "hi"})
    bridge.make_task("mail.welcome", [4], "8d", id="welcome-4")
    monkeypatch.chdir(tmp_path)
    result = compat(Path("new/tasks"), url=url)
    assert result.returncode == 3
    when = re.compile(r"first due .*")
    assert when.sub("", result.stdout) == when.sub("", shown)


def test_a_server_that_does_not_answer_is_code_1(fresh: Path) -> None:
    result = compat(fresh, url="redis://127.0.0.1:1/1")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("expirebridge: ")


def test_nothing_that_redis_names_is_imported(
    bridge: Bridge, fresh: Path, url: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    (fresh.parent / "trap.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef f(): ...")
    bridge.make_task("trap.f", [], "1h")
    assert compat(fresh, url=url).returncode == 3
    assert not mark.exists()


def test_the_waiting_ticks_of_series_are_compared(bridge: Bridge, fresh: Path, url: str) -> None:
    bridge.schedule("fits", "mail.greet", ["ann"], cron="0 9 * * MON")
    bridge.schedule("renamed", "mail.welcome", ["ann"], every="1h")
    result = compat(fresh, url=url)
    assert result.returncode == 3
    assert "tasks 2   would fail 1" in result.stdout
    assert "such as renamed@" in result.stdout
