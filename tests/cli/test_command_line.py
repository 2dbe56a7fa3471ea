"""Every command as a user runs it, with its output, exit code and errors."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge
from expirebridge.embedded.resources import example_tasks
from expirebridge.foreign import function_library
from tests.kit import processes
from tests.kit.invoked import run


def ok(*words: str | Path, url: str | None = None) -> str:
    result = run(*words, url=url)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def refused(code: int, *words: str | Path, url: str | None = None) -> str:
    """The one line on stderr of a command that exits with `code`."""
    result = run(*words, url=url)
    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.startswith("expirebridge: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_task_is_made_shown_moved_listed_counted_and_cancelled(url: str) -> None:
    made = json.loads(
        ok("make", "mail.send", '[42, "hi"]', "--in", "15m", "--id", "m1",
           "--tag", "a", "--tag", "b", "--json", url=url)
    )  # fmt: skip
    assert (made["outcome"], made["args"], made["tags"]) == ("created", [42, "hi"], ["a", "b"])
    assert made["key"] == 'm1:?mail.send?[42,"hi"]'
    assert "state    pending" in ok("show", "m1", url=url)
    assert ok("reschedule", "m1", "--in", "2h", url=url) == "m1: moved\n"
    due = datetime.fromisoformat(json.loads(ok("show", "m1", "--json", url=url))["due"])
    assert due - datetime.now(UTC) > timedelta(hours=1, minutes=59)
    ok("make", "mail.send", '{"user": 7}', "--at", "2099-05-01T08:00Z", url=url)
    table = ok("list", "--state", "pending", "--func", "mail.send", url=url)
    assert table.splitlines()[0].split() == [
        "id", "state", "due", "function", "arguments", "attempt", "error"
    ]  # fmt: skip
    assert '(42, "hi")' in table.splitlines()[1]
    assert "(user=7)" in table.splitlines()[2]
    listed = json.loads(ok("list", "--limit", "1", "--json", url=url))
    rest = json.loads(ok("list", "--limit", "1", "--cursor", listed["cursor"], "--json", url=url))
    assert [task["args"] for task in listed["tasks"] + rest["tasks"]] == [[42, "hi"], []]
    told = run("list", "--limit", "1", url=url).stderr
    assert told == f"(2 tasks looked at; there are more: --cursor {listed['cursor']})\n"
    assert "either --page or --cursor" in run("list", "--page", "2", "--cursor", "x").stderr
    listed = json.loads(ok("list", "--tag", "a", "--json", url=url))
    assert [task["id"] for task in listed["tasks"]] == ["m1"]
    assert json.loads(ok("count", "--json", url=url))["pending"] == 2
    assert ok("cancel", "m1", url=url) == "m1: cancelled\n"
    assert "cancelled  1" in ok("count", url=url)
    kept = ok("make", "mail.send", "--in", "1h", "--id", "m2", "--if-exists", "keep",
              "--window", "10s", url=url)  # fmt: skip
    assert "outcome  created" in kept


def test_all_tasks_of_a_tag_are_steered_and_counted(url: str) -> None:
    for id in ("m1", "m2"):
        ok("make", "mail.send", "--at", "2099-05-01T08:00Z", "--id", id, "--tag", "c9", url=url)
    assert ok("put-off", "--tag", "c9", "--by", "2h", url=url) == "moved    2\nrunning  0\n"
    assert ok("put-off", "m1", "--by", "2h", url=url) == "m1: moved\n"
    assert "due      2099-05-01T12:00:00.000Z" in ok("show", "m1", url=url)
    paused = json.loads(ok("pause", "--tag", "c9", "--json", url=url))
    assert paused == {"paused": 2, "running": 0}
    assert ok("resume", "--tag", "c9", url=url) == "resumed  2\nrunning  0\n"
    assert ok("cancel", "--tag", "c9", "--yes", url=url) == "cancelled  2\nrunning    0\n"
    for words in (("pause",), ("pause", "m1", "--tag", "c9")):
        assert "either an id or --tag" in run(*words, url=url).stderr
    assert "tag 'a b'" in refused(2, "pause", "--tag", "a b", url=url)


def test_tasks_are_cancelled_by_their_ids_and_by_their_handler(url: str) -> None:
    for id in ("m1", "m2", "m3", "m4"):
        ok("make", "mail.send", "--in", "1h", "--id", id, url=url)
    ok("make", "mail.send_all", "--in", "1h", "--id", "other", url=url)
    ok("pause", "m4", url=url)
    assert ok("cancel", "m1", "other", url=url) == "m1: cancelled\nother: cancelled\n"
    partly = run("cancel", "m1", "m9", "m2", url=url)
    assert (partly.returncode, partly.stdout) == (3, "m2: cancelled\n")
    assert ["'m1'" in partly.stderr, "'m9'" in partly.stderr] == [True, True]
    told = run("cancel", "--func", "mail.send", url=url)
    assert told.returncode != 0
    assert "Cancel 2 tasks of mail.send?" in told.stderr + told.stdout
    done = ok("cancel", "--func", "mail.send", "--yes", url=url)
    assert done == "cancelled  2\nrunning    0\n"
    for words in ((), ("m1", "--func", "mail.send"), ("--tag", "a", "--func", "mail.send")):
        assert "give ids, --tag or --func" in run("cancel", *words, url=url).stderr
    assert "--func 'a b'" in refused(2, "cancel", "--func", "a b", "--yes", url=url)


def test_a_task_s_history_is_shown(url: str) -> None:
    ok("make", "mail.send", "--in", "1h", "--id", "m1", url=url)
    ok("reschedule", "m1", "--in", "2h", url=url)
    ok("pause", "m1", url=url)
    shown = ok("show", "m1", url=url).splitlines()
    assert re.fullmatch(r"history  \S+Z  created", shown[-3])
    assert re.fullmatch(r" {9}\S+Z  reschedule, due \S+Z -> \S+Z", shown[-2])
    assert re.fullmatch(r" {9}\S+Z  pause, due \S+Z -> -", shown[-1])
    history = json.loads(ok("show", "m1", "--json", url=url))["history"]
    assert [entry["what"] for entry in history] == ["created", "reschedule", "pause"]
    assert set(history[1]) == {"at", "what", "old_due", "new_due", "times"}


def test_a_task_that_watches_is_beaten(url: str) -> None:
    words = ("watch", "w1", "alerts.silent", '["backup"]', "--ttl", "25h")
    assert "outcome  created" in ok(*words, url=url)
    assert ok("beat", "w1", url=url) == "w1: moved\n"
    assert "outcome  extended" in ok(*words, url=url)
    ok("make", "mail.send", "--in", "1h", "--id", "m1", url=url)
    assert "not watched" in refused(3, "beat", "m1", url=url)
    assert "not found" in refused(3, "beat", "nobody", url=url)
    assert "--ttl 'soon': not a duration" in refused(2, *words[:-1], "soon", url=url)


def test_what_is_not_possible_exits_3(url: str, bridge: Bridge) -> None:
    assert "there is no task 'm9'" in refused(3, "show", "m9", url=url)
    assert "not found" in refused(3, "cancel", "m9", url=url)
    assert "not found" in refused(3, "reschedule", "m9", "--in", "1h", url=url)
    bridge.make_task("mail.send", [], 60, id="m1")
    line = refused(3, "make", "mail.send", "--in", "1h", "--id", "m1", url=url)
    assert "task 'm1' exists and is pending" in line


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("make", "mail.send", "[1", "--in", "1h"), "args: "),
        (("make", "mail.send", "--in", "1h", "--window", "10s"), "--window '10s': it requires"),
        (("make", "mail.send", "[NaN]", "--in", "1h"), "args: "),
        (("make", "mail.send", "[99999999999999999999999]", "--in", "1h"), "beyond 64 bits"),
        (("make", "mail.send", "42", "--in", "1h"), "neither an array nor an object"),
        (("make", "../send", "--in", "1h"), "func='../send'"),
        (("make", "mail.send"), "either --in or --at"),
        (("make", "mail.send", "--in", "1h", "--at", "2099-01-01T00:00Z"), "not both"),
        (("make", "mail.send", "--in", "soon"), "--in 'soon': not a duration"),
        (("make", "mail.send", "--at", "2099-01-01"), "add a zone"),
        (("make", "mail.send", "--at", "tomorrow"), "ISO 8601"),
        (("make", "mail.send", "--in", "1h", "--id", "a b"), "--id 'a b'"),
        (("listen", "--lease", "0.1"), "--lease 0.1: it must be a number, at least 0.5"),
        (("count", "--url", "http://x"), "url='http://x'"),
        (("count", "--url", "redis://localhost/abc"), "'abc' is not a database's number"),
        (("listen", "--verbose", "--quiet"), "choose one"),
    ],
)
def test_bad_input_exits_2_and_says_what_was_wrong(
    bridge: Bridge, url: str, words: tuple[str, ...], wrong: str
) -> None:
    assert wrong in refused(2, *words, url=url)
    assert bridge.count().pending == 0


def test_an_unreachable_server_exits_1_and_passwords_are_not_shown() -> None:
    for words in (("count",), ("listen", "--tasks", example_tasks())):
        line = refused(1, *words, "--url", "redis://me:secret@127.0.0.1:1/1")
        assert "no answer from the server" in line
        assert "secret" not in line


def test_a_missing_handlers_folder_exits_1(tmp_path: Path, url: str) -> None:
    line = refused(1, "listen", "--tasks", tmp_path / "tasks", url=url)
    assert f"the handlers' folder {tmp_path}/tasks does not exist" in line


def test_a_module_that_does_not_import_stops_the_start_with_its_traceback(
    tmp_path: Path, url: str
) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "mail.py").write_text("import nothing_of_that_name\n")
    result = processes.run("listen", "--tasks", folder, url=url)
    assert result.returncode == 1
    assert f"{folder}/mail.py does not import" in result.stderr
    assert "ModuleNotFoundError: No module named 'nothing_of_that_name'" in result.stderr
    assert "importlib" not in result.stderr


def test_the_handlers_of_a_folder_are_shown() -> None:
    table = ok("handlers", "--tasks", example_tasks()).splitlines()
    assert table[0].split() == [
        "function", "kind", "retry", "timeout", "module", "aliases", "about"
    ]  # fmt: skip
    assert table[3].split()[:3] == ["orders.rate", "thread", "default"]
    assert "1s 1s 5s" in table[4]
    shown = json.loads(ok("handlers", "--tasks", example_tasks(), "--json"))
    assert [row["function"] for row in shown] == [
        "devices.offline", "mail.send", "orders.rate", "payments.callback"
    ]  # fmt: skip


def test_functions_are_loaded_shown_and_listed(url: str, client: redis.Redis) -> None:
    client.function_flush()
    mine = function_library.version()
    loaded = f"the functions of expirebridge {mine}: "
    assert ok("functions", "load", url=url) == f"{loaded}loaded\n"
    assert ok("functions", "load", url=url) == f"{loaded}there already\n"
    made = client.fcall("expirebridge_make", 1, "expirebridge", "mail.send", "[1]", 60_000)
    assert made[0] == b"created"
    shown = ok("functions", "show")
    assert client.function_load(shown.removesuffix("\n"), replace=True) == b"expirebridge"
    newer = shown.replace(f"version: {mine}", "version: 99.1")
    client.function_load(newer, replace=True)
    assert "has the functions of expirebridge 99.1" in refused(3, "functions", "load", url=url)
    assert "in place of version 99.1" in ok("functions", "load", "--replace", url=url)
    table = ok("functions", "scripts").splitlines()
    assert table[0].split() == ["name", "sha", "arguments"]
    rows = json.loads(ok("functions", "scripts", "--json"))
    assert [row["name"] for row in rows] == list(function_library.NAMES)
    [sha] = [row["sha"] for row in rows if row["name"] == "get"]
    assert client.script_load(ok("functions", "scripts", "get").removesuffix("\n")) == sha
    assert run("functions", "scripts", "none").returncode == 2


def test_what_is_in_redis_cannot_steer_a_terminal(url: str, client: redis.Redis) -> None:
    with Bridge(url) as bridge:
        bridge.make_task("mail.send", ["\x1b[31mred\u202e[bold]x"], 60, id="m1")
    client.hset("expirebridge:task:m1", "error", "\x1b]0;owned\x07")
    for words in (("list",), ("show", "m1")):
        shown = ok(*words, url=url)
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown


def test_every_command_explains_itself() -> None:
    overview = ok("--help")
    assert "Exit codes" in overview
    for command in ("demo", "server", "listen", "make", "show", "list", "cancel", "reschedule",
                    "count", "handlers", "functions", "doctor", "check", "acl"):  # fmt: skip
        assert command in overview
        assert f"expirebridge {command}" in ok(command, "--help")
