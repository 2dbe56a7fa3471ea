"""Limits on the dashboard: a page of the fullest lanes, and where a task waits."""

import re

import pytest
import redis

from expirebridge import Bridge, web
from tests.kit.waiting import declare, hold_slots, park
from tests.web.serving import Asking, words


@pytest.fixture(autouse=True)
def waiting(bridge: Bridge, client: redis.Redis) -> None:
    """Task `w` waits behind another one in the lane of customer 17."""
    declare(client, {"sms": {"most": 2}})
    client.hset("expirebridge:limits", "f sms.send", '[["sms", 0, "customer", null]]')
    hold_slots(client, "sms=17", "x", "y")
    for id, since in (("first", 100), ("w", 60)):
        bridge.make_task("sms.send", [17], 3600, id=id)
        park(client, id, "sms=17", due_since=since)


async def test_the_page_of_limits_shows_the_fullest_lanes(asking: Asking) -> None:
    async with asking() as client:
        page = words((await client.get("/limits")).text)
    assert "sms=17 2 2 2 " in page
    assert "sms 2 at once sms.send" in page


async def test_numbers_that_were_set_are_shown_beside_the_declared_ones(
    asking: Asking, bridge: Bridge, client: redis.Redis
) -> None:
    async with asking() as pages:
        assert "that were set" not in (await pages.get("/limits")).text
        bridge.set_limit("sms", 1, value=17)
        bridge.set_limit("sms", 3)
        client.hset("expirebridge:numbers", "gone", "<b>")
        page = words((await pages.get("/limits")).text)
        task = words((await pages.get("/task?id=w")).text)
    assert "sms 3 at once, declared 2 sms.send" in page
    assert "sms=17 2 1 2 " in page
    assert "sms 3 2 sms=17 1 2" in page
    assert "gone &lt;b&gt; no handler has such a limit" in page
    assert "2 of 1 taken (declared: 2)" in task


async def test_a_redaction_hides_the_values_of_numbers(asking: Asking, bridge: Bridge) -> None:
    bridge.set_limit("sms", 5, value=17)
    async with asking(redact=web.without_arguments) as pages:
        page = words((await pages.get("/limits")).text)
    assert "sms=(not shown) 5 2" in page
    assert "sms=17" not in page


async def test_without_limits_the_page_says_so(asking: Asking, client: redis.Redis) -> None:
    client.flushdb()
    async with asking() as dashboard:
        page = words((await dashboard.get("/limits")).text)
    assert "No handler has a limit." in page
    assert "No task has a slot, or waits for one." in page


async def test_a_task_s_page_says_where_it_waits(asking: Asking) -> None:
    async with asking(actions=True) as client:
        page = (await client.get("/task?id=w")).text
        listed = words((await client.get("/tasks?state=waiting")).text)
        counts = words((await client.get("/")).text)
    assert "waits for a slot of sms=17: 2 of 2 taken, 2nd in line" in words(page)
    assert {"put_off", "pause", "cancel"} == set(re.findall(r'name="action" value="(\w+)"', page))
    assert " of 2 " in listed
    assert "2 waiting" in counts


async def test_a_redaction_hides_the_values_of_lanes(asking: Asking) -> None:
    async with asking(redact=web.without_arguments) as client:
        pages = [words((await client.get(path)).text) for path in ("/limits", "/task?id=w")]
    assert "sms=(not shown) 2 2 2 " in pages[0]
    assert "waits for a slot of sms=(not shown): 2 of 2 taken, 2nd in line" in pages[1]
    assert not any("sms=17" in page for page in pages)
