"""Holds from the terminal."""

import json
import re

import pytest
import redis

from expirebridge import Bridge, InvalidTask
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.store.client import Store
from tests.kit.invoked import invoke, invoke_json, run
from tests.kit.steps import claim


def test_a_function_is_put_on_hold_seen_and_released(
    url: str, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.send", [], 0, id="a")
    told = invoke("hold", "--func", "mail.send", "--reason", "provider down", url=url)
    assert told == "mail.send: on hold\n"
    assert claim(store).tasks == []
    head, line = invoke("holds", url=url).splitlines()
    assert head.split() == ["on", "hold", "waiting", "until", "by", "reason"]
    assert re.fullmatch(r"func mail\.send +1 +its release +\S+@\S+ +provider down", line)
    assert invoke("release", "--func", "mail.send", url=url) == "mail.send: released\n"
    assert [task.id for task in claim(store).tasks] == ["a"]
    assert len(invoke("holds", url=url).splitlines()) == 1


def test_a_tag_is_on_hold_until_a_time(url: str) -> None:
    told = invoke("hold", "--tag", "customer-9", "--until", "2h", url=url).strip()
    assert re.fullmatch(r"customer-9: on hold until \S+ \(in (2h|1h 59m)\)", told)
    [hold] = invoke_json("holds", url=url)
    assert (hold["func"], hold["tag"], hold["waiting"], hold["readable"]) == (
        None, "customer-9", 0, True
    )  # fmt: skip
    assert hold["until"].endswith("+00:00")


def test_all_tasks_are_put_on_hold_and_released(url: str, bridge: Bridge, store: Store) -> None:
    bridge.make_task("mail.send", [], 0, id="a")
    assert invoke("hold", "--all", "--reason", "down", url=url) == "all tasks: on hold\n"
    assert claim(store).tasks == []
    assert re.search(r"^all +1 +its release ", invoke("holds", url=url), re.MULTILINE)
    [hold] = invoke_json("holds", url=url)
    assert (hold["name"], hold["all"], hold["func"], hold["tag"]) == ("all", True, None, None)
    assert invoke("release", "--all", "--spread", "10m", url=url) == "all tasks: released\n"
    assert [task.id for task in claim(store).tasks] == ["a"]


def test_the_outcome_as_json(url: str) -> None:
    words = ["--tag", "x", "--json"]
    on_hold, released, was_not = (
        run(*command, *words, url=url)
        for command in (["hold", "--until", "2100-01-01T00:00:00Z"], ["release"], ["release"])
    )
    assert json.loads(on_hold.stdout) == {
        "func": None, "tag": "x", "all": False, "until": "2100-01-01T00:00:00+00:00",
        "outcome": "on hold",
    }  # fmt: skip
    assert json.loads(released.stdout)["outcome"] == "released"
    assert json.loads(was_not.stdout)["outcome"] == "not on hold"
    assert (released.returncode, was_not.returncode) == (0, NOT_POSSIBLE)


def test_what_is_not_on_hold_cannot_be_released(url: str) -> None:
    result = run("release", "--func", "mail.sned", url=url)
    assert (result.returncode, result.stdout) == (NOT_POSSIBLE, "")
    assert result.stderr == "expirebridge: mail.sned: not on hold\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give func, tag or all"),
        (["--func", "a.b", "--tag", "x"], "give func, tag or all, one of them"),
        (["--func", "send"], "func='send': write module.function"),
        (["--tag", "x", "--until", "soon"], "--until soon: write a duration"),
        (["--tag", "x", "--until", "2020-01-01T00:00:00Z"], "this time has passed"),
        (["--tag", "x", "--until", "2100-01-01T00:00:00"], "add a zone, such as"),
    ],
)
def test_what_cannot_be_is_refused(url: str, words: list[str], told: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(told)):
        invoke("hold", *words, url=url)
    assert invoke_json("holds", url=url) == []


def test_what_another_client_wrote_cannot_control_the_terminal(
    url: str, client: redis.Redis
) -> None:
    client.hset("expirebridge:holds", "tag \x1b[31m", '{"reason": "\\u001b[0m"}')
    assert "\x1b" not in invoke("holds", url=url)
