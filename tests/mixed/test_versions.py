"""The first version beside this one, on one database: what one writes, the other reads and runs."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, FormatRefused
from tests.kit.processes import until_logged, until_subscribed
from tests.kit.versions import PRESENT, Version
from tests.mixed.kit import PROGRAMS, differences, until_settled

DUE = {
    "replaced": "succeeded", "plain": "succeeded", "keywords": "succeeded", "long": "succeeded",
    "past": "succeeded", "soon": "succeeded", "tagged": "succeeded", "retried": "succeeded",
    "retrying": "pending", "failed": "failed", "timed-out": "failed", "skipped": "failed",
    "spread": "succeeded", "watched": "succeeded", "wrong-arguments": "failed",
    "unknown": "pending",
}  # fmt: skip
"""The tasks that a listener takes at once, and what becomes of them."""
WAITING = {
    "moved": "succeeded", "put-off": "pending", "paused": "paused", "resumed": "pending",
    "cancelled": "cancelled", "now": "succeeded", "beaten": "pending", "debounced": "pending",
    "tag-1": "cancelled", "tag-2": "cancelled",
}  # fmt: skip
"""Those that wait until they are changed."""


def show(version: Version, *ids: str, url: str) -> dict[str, Any]:
    seen: dict[str, Any] = version.ask(PROGRAMS / "show_each.py", *ids, url=url)
    return seen


def states(seen: dict[str, Any]) -> dict[str, str]:
    return {id: task["state"] for id, task in seen["tasks"].items()}


def test_each_version_is_the_one_it_says(first: Version, url: str) -> None:
    refused = first.command("make", "acts.take", "--in", "1h", "--window", "1s", url=url)
    assert refused.returncode == 2
    assert "No such option" in refused.stderr
    window = ("--id", "a", "--if-exists", "keep", "--window", "1s")
    assert PRESENT.tell("make", "acts.take", "--in", "1h", *window, url=url)["id"] == "a"


def test_one_runs_what_the_other_makes(
    url: str, bridge: Bridge, folder: Path, versions: tuple[Version, Version]
) -> None:
    one, other = versions
    outcomes = one.ask(PROGRAMS / "make_each.py", "due", url=url)
    assert outcomes.count("drawn: created") == 70
    assert "replaced: replaced" in outcomes
    with other.listener(url, folder):
        until_settled(bridge, DUE)
        # Here: a listener that was killed counts for half a lease, and then no longer.
        seen = [show(version, *DUE, url=url) for version in versions]
    assert list(differences(*seen)) == []
    assert states(seen[0]) == DUE
    tasks = seen[0]["tasks"]
    assert tasks["plain"]["result"] == {"args": ["1", "é", "None"], "kwargs": {}}
    assert tasks["keywords"]["result"] == {"args": ["1"], "kwargs": {"b": 2}}
    assert tasks["long"]["args"] == ["é" * 1000]
    assert tasks["replaced"]["result"]["args"] == ["new"]
    assert tasks["tagged"]["tags"] == ["a", "b"]
    assert tasks["retried"]["attempt"] == 2
    assert "timed out after 0.05 s" in tasks["timed-out"]["error"]
    assert "skipped: found 1m" in tasks["skipped"]["error"]
    assert "its arguments do not fit" in tasks["wrong-arguments"]["error"]
    assert bridge.count().succeeded >= 70


def test_one_changes_what_the_other_made_and_the_first_runs_it(
    url: str, bridge: Bridge, folder: Path, versions: tuple[Version, Version]
) -> None:
    one, other = versions
    one.ask(PROGRAMS / "make_each.py", "waiting", url=url)
    answers = other.ask(PROGRAMS / "change_each.py", url=url)
    assert answers == {
        "reschedule": "moved", "put_off": "moved", "pause": "paused", "resume": "resumed",
        "cancel": "cancelled", "run_now": "due now", "beat": "moved", "extend": "extended",
        "keep": "kept", "put_off_tag": {"moved": 2, "running": 0},
        "cancel_tag": {"cancelled": 2, "running": 0},
        "unknown": "not found", "tag": ["tag-1", "tag-2"], "paused": ["paused"],
    }  # fmt: skip
    with one.listener(url, folder):
        until_settled(bridge, WAITING)
        seen = [show(version, *WAITING, url=url) for version in versions]
    assert list(differences(*seen)) == []
    assert states(seen[0]) == WAITING


def test_a_task_goes_on_in_the_other_version(
    url: str, bridge: Bridge, folder: Path, versions: tuple[Version, Version]
) -> None:
    """It failed once in the one, and waits for its retry, which the other makes."""
    one, other = versions
    bridge.make_task("acts.fail", [1], 0, id="retried", retry=["1h"])
    bridge.make_task("acts.fail", [9], 0, id="failed", retry=["1h"])
    bridge.make_task("acts.take", [], "1h", id="paused")
    with one.listener(url, folder) as process:
        until_settled(bridge, {"retried": "pending", "failed": "pending"}, attempts=1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [one.tell("pause", "paused", url=url), other.tell("resume", "paused", url=url)]
    with other.listener(url, folder):
        for id in ("retried", "failed"):
            bridge.reschedule(id, 0)
        until_settled(bridge, {"retried": "succeeded", "failed": "failed"})
        seen = [show(version, "retried", "failed", "paused", url=url) for version in versions]
    assert list(differences(*seen)) == []
    tasks = seen[0]["tasks"]
    assert (tasks["retried"]["attempt"], tasks["failed"]["attempt"]) == (2, 2)
    assert ["retry", 1, 1, "ValueError: attempt 1 fails"] in tasks["failed"]["history"]
    retried = one.tell("failed", "retry", "--yes", url=url)
    assert retried == {"due now": 1}


def test_both_hear_and_count_each_other(
    url: str, bridge: Bridge, folder: Path, first: Version, client: redis.Redis
) -> None:
    """They share the events of the server: a key that any client set runs once, in either."""
    with first.listener(url, folder), PRESENT.listener(url, folder):
        until_subscribed(url, 2)
        assert [show(version, url=url)["listeners"] for version in (first, PRESENT)] == [2, 2]
        for version in (first, PRESENT):
            assert version.command("check", url=url).returncode == 0
            findings = version.tell("doctor", url=url)["findings"]
            assert not [one for one in findings if one["level"] == "error"]
        for n in range(40):
            client.set(f"foreign-{n}:?acts.take?[{n}]", "", px=50)
        until_settled(bridge, {f"foreign-{n}": "succeeded" for n in range(40)})
    seen = show(PRESENT, *(f"foreign-{n}" for n in range(40)), url=url)
    assert {task["attempt"] for task in seen["tasks"].values()} == {1}


@pytest.mark.parametrize(
    "words", [["list"], ["list", "--state", "failed"], ["count"], ["failed", "list"], ["stats"]]
)
def test_both_commands_show_the_same(
    url: str, first: Version, many_tasks: None, words: list[str]
) -> None:
    old, new = (version.tell(*words, url=url) for version in (first, PRESENT))
    for answer in (old, new):
        # Their order is no promise, but by due time or end.
        answer.get("tasks", []).sort(key=lambda task: task["id"])
    assert list(differences(old, new)) == []


def test_both_dashboards_show_the_same(url: str, first: Version, many_tasks: None) -> None:
    old, new = (version.ask(PROGRAMS / "browse.py", url=url) for version in (first, PRESENT))
    assert old == new
    assert new == {
        "pending": ["waits-0", "waits-3", "waits-4", "waits-5"], "paused": ["waits-1"],
        "succeeded": ["ended-0", "ended-2", "ended-4"],
        "failed": ["ended-1", "ended-3", "ended-5"], "cancelled": ["waits-2"],
    }  # fmt: skip


def test_tasks_move_between_the_versions(
    url: str, client: redis.Redis, bridge: Bridge, versions: tuple[Version, Version], tmp_path: Path
) -> None:
    one, other = versions
    one.ask(PROGRAMS / "make_each.py", "waiting", url=url)
    before = states(show(one, *WAITING, url=url))
    file = tmp_path / "tasks.ndjson"
    assert one.command("export", str(file), url=url).returncode == 0
    client.flushdb()
    result = other.command("import", str(file), url=url)
    assert (result.returncode, result.stdout.split()) == (0, ["created", "10", "kept", "0"])
    assert states(show(other, *WAITING, url=url)) == before


def test_functions_of_one_version_serve_the_other(
    url: str, client: redis.Redis, bridge: Bridge, folder: Path, versions: tuple[Version, Version]
) -> None:
    one, other = versions
    client.function_flush()
    assert one.command("functions", "load", url=url).returncode == 0
    for word, id in (("make", "made"), ("cancelled", "cancelled")):
        made = client.fcall(
            "expirebridge_make", 1, "expirebridge", "acts.take", f'["{word}"]', "60000", "id", id
        )
        assert made[0] == b"created"
    assert client.fcall("expirebridge_cancel", 1, "expirebridge", "cancelled") == b"cancelled"
    with other.listener(url, folder):
        assert client.fcall("expirebridge_run_now", 1, "expirebridge", "made") == b"due now"
        until_settled(bridge, {"made": "succeeded"})
    assert b"succeeded" in client.fcall("expirebridge_get", 1, "expirebridge", "made")
    # What the other loads takes their place, unless they are newer.
    loaded = other.command("functions", "load", url=url)
    is_newer = one is PRESENT and one.number != other.number
    assert loaded.returncode == (3 if is_newer else 0), loaded.stderr
    left = client.fcall("expirebridge_version", 0)
    assert left.decode() == (one if is_newer else other).number


def test_a_new_option_holds_beside_a_first_listener(
    url: str, bridge: Bridge, folder: Path, first: Version
) -> None:
    """What only this version's producers know: a window after a run that the other recorded."""
    call: dict[str, Any] = {"func": "acts.take", "delay": 0, "id": "a", "if_exists": "keep"}
    with first.listener(url, folder):
        bridge.make_task(**call, window="1h")
        until_settled(bridge, {"a": "succeeded"})
        assert bridge.make_task(**call, window="1h").outcome == "kept"
        assert bridge.make_task(**call).outcome == "created"
        until_settled(bridge, {"a": "succeeded"})


def test_a_first_listener_takes_what_only_newer_code_can_run(
    url: str, bridge: Bridge, folder: Path, first: Version, tmp_path: Path
) -> None:
    """It does not leave it to the newer listener, which knows it."""
    newer = tmp_path / "newer" / "tasks"
    newer.mkdir(parents=True)
    (newer / "acts.py").write_text("def fail(times, why): ...\ndef fresh(): ...\n")
    with PRESENT.listener(url, newer) as process:
        process.send_signal(signal.SIGTSTP)
        until_logged("suspended", newer)
        with first.listener(url, folder):
            bridge.make_task("acts.fail", [1, "why"], 0, id="unfit")
            bridge.make_task("acts.fresh", [], 0, id="unknown")
            until_settled(bridge, {"unfit": "failed"})
            while (task := bridge.get("unknown")) and "no handler" not in (task.error or ""):
                time.sleep(0.02)
            process.send_signal(signal.SIGCONT)
            until_logged("resumed", newer)
        bridge.run_now("unknown")
        until_settled(bridge, {"unknown": "succeeded"})


def test_the_logins_of_this_version_serve_the_first(url: str, first: Version) -> None:
    """So they can be changed before an upgrade."""
    old, new = (rights(version, url) for version in (first, PRESENT))
    assert set(old) == set(new) == {"producer", "listener", "dashboard"}
    for role, words in old.items():
        assert words <= new[role]


def rights(version: Version, url: str) -> dict[str, set[str]]:
    """What each role may, by the lines that the version prints."""
    lines = version.command("acl", url=url).stdout.splitlines()
    words = [line.split() for line in lines]
    return {each[2].removeprefix("expirebridge-"): set(each[3:]) for each in words}


def test_the_first_version_refuses_a_format_that_it_does_not_know(
    url: str, client: redis.Redis, bridge: Bridge, folder: Path, first: Version
) -> None:
    bridge.make_task("acts.take", [], 0, id="a")
    bridge.raise_format()
    before = client.dbsize()
    for words in (["make", "acts.take", "--in", "1h"], ["listen", "--tasks", str(folder)]):
        result = first.command(*words, url=url)
        assert result.returncode == 1
        assert "has format 2, but this expirebridge knows only up to 1" in result.stderr
    assert client.dbsize() == before
    assert client.zcard("expirebridge:pending") == 1
    bridge.lower_format()
    with first.listener(url, folder):
        until_settled(bridge, {"a": "succeeded"})


def test_the_first_version_refuses_several_partitions(
    url: str, client: redis.Redis, bridge: Bridge, folder: Path, first: Version
) -> None:
    """And writes nothing without a tag, where it would run alone."""
    bridge.create_partitions(4)
    before = set(client.scan_iter())
    for words in (["make", "acts.take", "--in", "1h"], ["listen", "--tasks", str(folder)]):
        result = first.command(*words, url=url)
        assert result.returncode == 1
        assert "has format 2, but this expirebridge knows only up to 1" in result.stderr
    assert set(client.scan_iter()) == before


def test_the_format_is_not_raised_while_a_listener_of_the_first_version_beats(
    url: str, client: redis.Redis, bridge: Bridge, folder: Path, first: Version
) -> None:
    with PRESENT.listener(url, folder), first.listener(url, folder) as older:
        [name] = bridge.read_format().older_listeners
        assert f":{older.pid}:" in name
        with pytest.raises(FormatRefused, match=f"know no other: {name}; upgrade them"):
            bridge.raise_format()
        assert client.hget("expirebridge:meta", "format") == b"1"
        bridge.make_task("acts.take", [], 0, id="a")
        until_settled(bridge, {"a": "succeeded"})
        older.terminate()
        older.wait()
        bridge.raise_format()
        bridge.make_task("acts.take", [], 0, id="b")
        until_settled(bridge, {"b": "succeeded"})
