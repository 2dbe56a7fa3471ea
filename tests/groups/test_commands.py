"""Groups from the terminal."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from expirebridge import Bridge, GroupState, State, Then
from expirebridge.cli.ending import BAD_INPUT, NOT_POSSIBLE
from expirebridge.store.client import Store
from expirebridge.task.calls.claiming import Settlement
from tests.kit.invoked import end_due_tasks, invoke, invoke_json, run
from tests.kit.processes import ROOT
from tests.kit.steps import claim, settle, state_of

PAGE = (ROOT / "docs" / "how-to" / "groups.md").read_text(encoding="utf-8")
THEN = Then("mail.report", [7])


def items(count: int, delay: Any = "1h") -> Iterable[dict[str, Any]]:
    return ({"func": "mail.send", "args": [number], "delay": delay} for number in range(count))


@pytest.fixture
def group(bridge: Bridge, store: Store) -> None:
    """`import-7`: of 5 members 2 have failed, and the others are not due."""
    bridge.make_group("import-7", [*items(2, 0), *items(3)], then=THEN)
    end_due_tasks(store)


@pytest.mark.usefixtures("group")
def test_groups_are_listed_unended_ones_first(bridge: Bridge, url: str) -> None:
    bridge.make_group("aaa", [])
    head, *lines = invoke("groups", "list", url=url).splitlines()
    assert head.split() == ["group", "state", "left", "of", "failed", "created", "ended"]
    assert re.fullmatch(r"import-7 +closed +5 +5 +2 +\S+ \(.* ago\)", lines[0])
    assert re.fullmatch(r"aaa +ended +0 +0 +0 +\S+ \(.* ago\) +\S+ \(.* ago\)", lines[1])
    listed = invoke_json("groups", "list", "--limit", "1", url=url)
    assert listed["complete"] is False
    [one] = listed["groups"]
    assert (one["name"], one["state"], one["left"], one["total"], one["failed"], one["then"]) == (
        "import-7", "closed", 5, 5, 2, "import-7@then"
    )  # fmt: skip
    assert run("groups", "list", "--limit", "1", url=url).stderr == "(there are more: --limit)\n"


@pytest.mark.usefixtures("group")
def test_a_group_and_its_members_are_shown(url: str) -> None:
    shown = dict(
        re.split(r" {2,}", line, maxsplit=1)
        for line in invoke("groups", "show", "import-7", url=url).splitlines()
    )
    assert (shown["group"], shown["state"], shown["members"], shown["follow-up"]) == (
        "import-7", "closed", "5 of 5 members left, 2 failed", "import-7@then"
    )  # fmt: skip
    assert shown["last failed"].endswith(" ago)")
    assert invoke_json("groups", "show", "import-7", url=url)["on_failed"] == "wait"
    failed = invoke_json("list", "--group", "import-7", "--state", "failed", url=url)
    assert [task["id"] for task in failed["tasks"]] == ["import-7@g0", "import-7@g1"]


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("id", ["import-7@g4", "import-7@then"])
def test_a_task_names_its_group_and_how_far_that_is(url: str, id: str) -> None:
    shown = invoke("show", id, url=url)
    assert re.search(r"^group +import-7: closed, 5 of 5 members left, 2 failed$", shown, re.M)


def test_a_paused_task_shows_how_long_after_it_is_resumed_it_is_due(
    bridge: Bridge, url: str
) -> None:
    def shown(id: str) -> str:
        [due] = re.findall(r"^due +(.*)$", invoke("show", id, url=url), re.M)
        return str(due)

    bridge.make_group("import-7", items(1), then=THEN)
    assert shown("import-7@then") == "as soon as it is resumed"
    assert re.fullmatch(r"\S+Z \(in (1h|59m 5\ds)\)", shown("import-7@g0"))
    bridge.pause("import-7@g0")
    assert re.fullmatch(r"(1h|59m 5\ds) after it is resumed", shown("import-7@g0"))


def test_what_only_looks_like_a_follow_up_has_no_group(bridge: Bridge, url: str) -> None:
    bridge.make_task("mail.send", delay=60, id="a@then")
    assert not re.search("^group", invoke("show", "a@then", url=url), re.M)


def without_times(printed: str) -> list[list[str]]:
    printed = re.sub(r"\S+Z \(.*? ago\)", "TIME", printed)
    return [line.split() for line in printed.splitlines()]


def test_the_page_shows_what_is_printed(bridge: Bridge, store: Store, url: str) -> None:
    # 588 have succeeded, 2 have failed, and 410 are not due.
    bridge.make_group("import-7", [*items(590, 0), *items(410)], then=THEN)
    first, second, *others = (task.id for task in claim(store).tasks)
    settle(store, *(Settlement(id, "t", "failed", 0, "no") for id in (first, second)))
    settle(store, *(Settlement(id, "t", "succeeded") for id in others))
    end_due_tasks(store, "succeeded")
    [block] = re.findall(r"^```console\n(.*?)```$", PAGE, re.M | re.S)
    commands = re.findall(r"^\$ expirebridge (.*)\n((?:[^$].*\n)*)", block, re.M)
    assert len(commands) == 4
    for words, shown in commands:
        printed = invoke(*words.split(), url=url)
        if shown == "...\n":
            assert first in printed
        else:
            assert without_times(printed) == without_times(shown)


def test_an_open_group_is_closed(bridge: Bridge, store: Store, url: str) -> None:
    bridge.make_group("crawl", items(1), then=THEN, close=False)
    bridge.make_group("idle", [], then=THEN, close=False)
    assert invoke("groups", "close", "crawl", url=url) == "crawl: closed\n"
    assert invoke_json("groups", "close", "idle", url=url) == {"group": "idle", "outcome": "ended"}
    assert state_of(store, "idle@then") is State.PENDING


@pytest.mark.parametrize(
    ("count", "counted"), [(3, "3 members that have"), (1, "1 member that has")]
)
def test_a_group_is_cancelled_if_that_is_confirmed(
    bridge: Bridge, store: Store, url: str, count: int, counted: str
) -> None:
    bridge.make_group("import-7", items(count), then=THEN)
    refused = run("groups", "cancel", "import-7", url=url)
    assert (refused.returncode, refused.stdout) == (BAD_INPUT, "")
    assert refused.stderr == (
        f"expirebridge: Cancel import-7, with {counted} not ended? stdin is not a terminal: "
        "add --yes\n"
    )
    found = bridge.get_group("import-7")
    assert found is not None
    assert found.state is GroupState.CLOSED
    assert invoke("groups", "cancel", "import-7", "--yes", url=url) == "import-7: cancelled\n"
    assert state_of(store, "import-7@then") is State.CANCELLED
    assert state_of(store, f"import-7@g{count - 1}") is State.CANCELLED


def test_one_that_has_ended_is_not_cancelled(bridge: Bridge, url: str) -> None:
    bridge.make_group("done", [])
    result = run("groups", "cancel", "done", url=url)
    assert (result.returncode, result.stdout) == (NOT_POSSIBLE, "")
    assert result.stderr == "expirebridge: group 'done' has ended\n"
    result = run("groups", "cancel", "done", "--json", url=url)
    assert json.loads(result.stdout) == {"group": "done", "outcome": "ended"}
    assert result.returncode == NOT_POSSIBLE


@pytest.mark.parametrize("word", ["show", "close", "cancel"])
def test_a_group_that_is_not_there_is_an_error_of_one_line(url: str, word: str) -> None:
    result = run("groups", word, "nine", url=url)
    assert (result.returncode, result.stdout) == (NOT_POSSIBLE, "")
    assert result.stderr.startswith("expirebridge: group 'nine' does not exist: ")
    assert result.stderr.count("\n") == 1
    result = run("groups", word, "a b", url=url)
    assert (result.returncode, result.stdout) == (BAD_INPUT, "")
    assert result.stderr.startswith("expirebridge: group='a b': a group's name has ")
