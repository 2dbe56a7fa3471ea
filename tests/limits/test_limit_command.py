"""Numbers of limits, set from the terminal."""

import json
import re

import pytest
import redis

from expirebridge import InvalidTask
from expirebridge.limits.calls import declare_limits
from expirebridge.store.client import Store
from tests.kit.invoked import invoke, invoke_json, run
from tests.kit.steps import PREFIX

NUMBERS = f"{PREFIX}:numbers"


@pytest.fixture(autouse=True)
def declared(store: Store) -> None:
    store.run(
        declare_limits(
            "aa",
            [
                ("f exports.run", b'[["exports:customer",0,"customer",null],["all"]]'),
                ("l exports:customer", b'{"most":5}'), ("l all", b'{"most":9}'),
            ],
        )
    )  # fmt: skip


def test_a_number_is_set_seen_and_taken_back(url: str, client: redis.Redis) -> None:
    assert invoke("limit", "exports:customer", "20", url=url) == "exports:customer: 20\n"
    told = invoke("limit", "exports:customer", "1500", "--value", "acme", url=url)
    assert told == "exports:customer=acme: 1,500\n"
    text = invoke("limits", url=url)
    assert re.search(r"^exports:customer +20 at once, declared 5 +exports.run$", text, re.MULTILINE)
    _, numbers, _ = text.split("\n\n", 2)
    assert [line.split() for line in numbers.splitlines()] == [
        ["set", "to", "declared", "ignored"], ["exports:customer", "20", "5"],
        ["exports:customer=acme", "1500", "5"],
    ]  # fmt: skip
    told = invoke("limit", "exports:customer", "--value", "acme", "--declared", url=url)
    assert told == "exports:customer=acme: as declared\n"
    assert client.hgetall(NUMBERS) == {b"exports:customer": b"20"}


def test_as_json(url: str) -> None:
    assert invoke_json("limit", "all", "20", url=url) == {
        "limit": "all", "value": None, "number": 20
    }  # fmt: skip
    invoke("limit", "exports:customer", "7", "--value", "acme", url=url)
    found = invoke_json("limits", url=url)
    assert found["numbers"] == [
        {
            "limit": "all", "value": None, "number": 20, "declared": 9, "stored": "20",
            "ignored": "",
        },
        {
            "limit": "exports:customer", "value": "acme", "number": 7, "declared": 5,
            "stored": "7", "ignored": "",
        },
    ]  # fmt: skip
    assert [(one["name"], one["most"], one["declared"]) for one in found["limits"]] == [
        ("all", 20, 9), ("exports:customer", 5, None)
    ]  # fmt: skip
    told = invoke_json("limit", "all", "--declared", url=url)
    assert told == {"limit": "all", "value": None, "number": None}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["all"], "give either number or declared"),
        (["all", "5", "--declared"], "give either number or declared, not both"),
        (["all", "0"], "number=0: a whole number, 1 to 1,000,000"),
        (["all", "1000001"], "number=1000001: 'all' takes a whole number, 1 to 1,000,000"),
        (["all", "9" * 30], "number='999"),
        (["all", "1.5"], "number='1.5': a whole number"),
        (["all", "many"], "number='many': a whole number"),
        (["all", "--", "-1"], "number=-1: a whole number"),
        (["all", "5", "--value", "x"], "value='x': 'all' has one lane for all values"),
        (["nothing", "5"], "limit='nothing': no handler of a listener has a limit of that name"),
        (["nothing", "--declared"], "limit='nothing': no handler of a listener has a limit"),
    ],
)
def test_what_cannot_be_is_refused(
    url: str, client: redis.Redis, words: list[str], told: str
) -> None:
    with pytest.raises(InvalidTask, match=re.escape(told)):
        invoke("limit", *words, url=url)
    assert not client.exists(NUMBERS)


def test_the_error_names_the_options(url: str) -> None:
    result = run("limit", "all", "5", "--value", "x", url=url)
    assert result.returncode == 2
    assert "--value 'x': 'all' has one lane for all values" in result.stderr


def test_what_another_client_wrote_cannot_control_the_terminal(
    url: str, client: redis.Redis
) -> None:
    client.hset(NUMBERS, "all \x1b[31m", "\x1b[0m")
    assert "\x1b" not in invoke("limits", url=url)
    json.dumps(invoke_json("limits", url=url))
