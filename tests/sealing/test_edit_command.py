"""`expirebridge edit` from the terminal."""

import re

import pytest
from typer.testing import CliRunner

from expirebridge import Bridge, Task
from expirebridge.cli.ending import BAD_INPUT, NOT_POSSIBLE
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet
from expirebridge.task.calls.fleet import digest_of
from tests.kit.invoked import app, invoke, invoke_json, run
from tests.kit.processes import ROOT

PAGE = (ROOT / "docs" / "how-to" / "find-and-change-tasks.md").read_text(encoding="utf-8")


@pytest.fixture
def declared(store: Store) -> None:
    """A listener that has a function with a signature."""
    shapes = {"mail.send": "(to, subject, copy=...)"}
    code = digest_of(shapes)
    store.run(claiming.heartbeat("me", 10, [], code=code, functions=1))
    store.run(fleet.declare(code, shapes))


@pytest.mark.usefixtures("declared")
def test_the_page_shows_what_is_printed(url: str, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [9, "hi"], "2d", id="mail-9")
    [shown] = re.findall(r"^\$ expirebridge edit .*?\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    words = ("edit", "mail-9", "--args", '[9, "hello"]', "--kwargs", '{"copy": 17}')
    assert invoke(*words, url=url) == shown
    told = invoke_json("show", "mail-9", url=url)
    assert (told["args"], told["kwargs"]) == ([9, "hello"], {"copy": 17})
    assert [one["what"] for one in told["history"]] == ["created", "edit_args"]
    assert "edit_args" in invoke("show", "mail-9", url=url)


def test_without_a_listener_it_says_that_nothing_was_checked(url: str, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [9, "hi"], "2d", id="a", kwargs={"x": 1})
    assert invoke("edit", "a", "--args", "[9]", url=url).splitlines() == [
        "a: edited, not checked",
        'args[1]  "hi" -> (none)',
        "checked  no: no running listener has declared the signature",
    ]
    told = invoke_json("edit", "a", "--kwargs", '{"x": null, "y": [2]}', url=url)
    assert told == {
        "id": "a",
        "outcome": "edited, not checked",
        "changes": [
            {"argument": "kwargs['x']", "old": 1, "new": None},
            {"argument": "kwargs['y']", "new": [2]},
        ],
    }


@pytest.mark.usefixtures("declared")
def test_what_does_not_fit_is_bad_input(url: str, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [9, "hi"], "2d", id="a")
    result = run("edit", "a", "--args", "[9]", url=url)
    assert (result.returncode, result.stdout) == (BAD_INPUT, "")
    reason = "mail.send(to, subject, copy=...): missing a required argument: 'subject'"
    assert result.stderr == f"expirebridge: the arguments do not fit: {reason}\n"
    for words in (["--args", "{}"], ["--kwargs", "[]"], ["--args", "no"], []):
        assert run("edit", "a", *words, url=url).returncode == BAD_INPUT
    task = bridge.get("a")
    assert task is not None
    assert task.args == [9, "hi"]


def test_what_its_state_forbids_is_not_possible(url: str, bridge: Bridge) -> None:
    words = ("edit", "a", "--args", "[1]")
    result = run(*words, url=url)
    assert (result.returncode, result.stderr) == (
        NOT_POSSIBLE,
        "expirebridge: task 'a': not found: it was never made, or has ended and was forgotten\n",
    )
    bridge.make_task("mail.send", [9, "hi"], "2d", id="a")
    bridge.cancel("a")
    assert "'a': finished" in run(*words, url=url).stderr
    assert invoke(*words, "--json", url=url, code=NOT_POSSIBLE).split() == [
        "{", '"id":', '"a",', '"outcome":', '"finished"', "}"
    ]  # fmt: skip


def test_what_somebody_else_has_changed_meanwhile_stays(
    url: str, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Bridge.get

    def read_before_another_edit(bridge: Bridge, id: str) -> Task | None:
        task = read(bridge, id)
        bridge.edit(id, [8])
        return task

    bridge.make_task("mail.send", [1], "2d", id="a")
    monkeypatch.setattr(Bridge, "get", read_before_another_edit)
    result = CliRunner().invoke(app, ["edit", "a", "--args", "[2]", "--url", url])
    assert result.exit_code == NOT_POSSIBLE
    assert "task 'a' was changed meanwhile: nothing was done" in result.output
    monkeypatch.undo()
    task = bridge.get("a")
    assert task is not None
    assert task.args == [8]
