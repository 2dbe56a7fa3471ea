"""The name of a lane from a task's arguments: Lua's part of the table."""

import pytest
import redis

from expirebridge.limits.calls import declare_limits
from expirebridge.store.client import Store
from expirebridge.task.calls import producing
from tests.kit.lane_values import LANE_VALUES
from tests.kit.steps import claim, new

pytestmark = pytest.mark.servers("oldest")

FORMS = ["[{}]", ' [ {} , "other" ]', '{{"to":"first","to":{}}}', '{{"x":[1,"]"],"*":[{}]}}']
"""Every way in which an argument can be given."""


@pytest.mark.parametrize("form", FORMS)
def test_an_argument_chooses_its_lane(store: Store, client: redis.Redis, form: str) -> None:
    fields = [("f mail.send", b'[["l",0,"to",null]]'), ("l l", b'{"most":1000}')]
    store.run(declare_limits("aa", fields))
    made = [
        new(f"t{place}", call=b"mail.send?" + form.format(case.json).encode())
        for place, case in enumerate(LANE_VALUES)
    ]
    store.run(producing.make(made))
    assert len(claim(store).tasks) == len(made)
    found = [client.hget(f"expirebridge:task:{task.id}", "slots") for task in made]
    assert found == [f"l={case.value}".encode() for case in LANE_VALUES]


@pytest.mark.parametrize(
    ("args", "value"),
    [
        ("[]", "standard"),
        ('{"other":1}', "standard"),
        ("[[[[", "standard"),
        ('["', "standard"),
        ("{x}", "standard"),
        ("@", "standard"),
        ('{"*":7}', "standard"),
        ('[1,"a"]', "a"),
    ],
)
def test_what_is_not_there_or_no_json_has_the_lane_of_the_default(
    store: Store, client: redis.Redis, args: str, value: str
) -> None:
    fields = [("f mail.send", b'[["l",1,"to","standard"]]'), ("l l", b'{"most":1}')]
    store.run(declare_limits("aa", fields))
    store.run(producing.make([new("a", call=f"mail.send?{args}".encode())]))
    assert len(claim(store).tasks) == 1
    assert client.hget("expirebridge:task:a", "slots") == f"l={value}".encode()
