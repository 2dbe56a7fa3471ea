"""Holds on the dashboard: shown, set and released."""

import re
from datetime import timedelta

import httpx
import pytest
import redis

from expirebridge import AsyncBridge, web
from expirebridge.store.client import Store
from expirebridge.task.task import from_ms
from tests.kit.steps import claim, server_ms
from tests.web.serving import OWN, Asking, words

HOLD = {"action": "hold", "kind": "func", "name": "mail.send"}
RELEASE = HOLD | {"action": "release"}


async def test_holds_are_shown_with_what_waits_for_them(
    asking: Asking, async_bridge: AsyncBridge, store: Store, client: redis.Redis
) -> None:
    async with asking() as pages:
        assert "Nothing is on hold." in (await pages.get("/limits")).text
    await async_bridge.hold(func="mail.send", reason="the provider is down")
    until = from_ms(server_ms(client)) + timedelta(hours=2)
    await async_bridge.hold(tag="c9", until=until, by="ann")
    client.hset("expirebridge:holds", "mail.send", "")
    await async_bridge.make_task("mail.send", [], 0)
    assert claim(store).parked == 1
    async with asking(actions=True) as pages:
        page = (await pages.get("/limits")).text
        [waiting] = re.findall(r'href="(/tasks\?state=waiting&amp;func=mail.send)">1</a>', page)
        assert "all that can match" in (await pages.get(waiting.replace("&amp;", "&"))).text
    rows = [words(row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)]
    [down] = [row for row in rows if "the provider is down" in row]
    assert down.startswith("func mail.send 1 its release ")
    [tagged] = [row for row in rows if row.startswith("tag c9 0 ")]
    assert re.search(r" in (2h|1h 59m) ann ", tagged)
    # The third is no name of a function or a tag: there is nothing to release.
    assert any("holds nothing" in row and "not readable" in row for row in rows)
    assert page.count(">Release</button>") == 2


async def test_a_function_is_put_on_hold_and_released(
    asking: Asking, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    credentials = web.Credentials(users={"ann": "x"})
    async with asking(actions=True, credentials=credentials) as pages:
        pages.auth = httpx.BasicAuth("ann", "x")
        pages.headers["origin"] = OWN
        form = HOLD | {"reason": "it is down", "for": " 2h "}
        answer = await pages.post("/limits", data=form)
        assert answer.status_code == 303
        assert "Done: on hold." in (await pages.get(answer.headers["location"])).text
        [hold] = await async_bridge.holds()
        assert (hold.name, hold.reason, hold.by) == ("func mail.send", "it is down", "ann")
        assert hold.until is not None
        left = hold.until - from_ms(server_ms(client))
        assert timedelta(hours=1, minutes=59) < left <= timedelta(hours=2)
        for told in ("Done: released.", "Done: not on hold."):
            answer = await pages.post("/limits", data=RELEASE)
            assert told in (await pages.get(answer.headers["location"])).text
        assert await async_bridge.holds() == []
        await pages.post("/limits", data=HOLD | {"kind": "tag", "name": "c9"})
        [hold] = await async_bridge.holds()
        assert (hold.tag, hold.until, hold.reason) == ("c9", None, "")
        log = words((await pages.get("/actions")).text)
    assert re.findall(r"ann (\w+) (\w+ [\w.]+) 1 (released|on hold|not on hold)", log) == [
        ("hold", "tag c9", "on hold"),
        ("release", "func mail.send", "not on hold"),
        ("release", "func mail.send", "released"),
        ("hold", "func mail.send", "on hold"),
    ]


async def test_all_tasks_are_put_on_hold_and_released_over_a_time(
    asking: Asking, async_bridge: AsyncBridge, store: Store, client: redis.Redis
) -> None:
    await async_bridge.make_task("mail.send", [], 0)
    await async_bridge.make_task("sms.send", [], 0)
    async with asking(actions=True) as pages:
        pages.headers["origin"] = OWN
        await pages.post("/limits", data={"action": "hold", "kind": "all", "name": ""})
        assert claim(store).parked == 2
        page = (await pages.get("/limits")).text
        [row] = [each for each in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL) if ">all<" in each]
        assert 'href="/tasks?state=waiting">2</a>' in row
        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="(.*?)">', row))
        assert form == {"action": "release", "kind": "all", "name": ""}
        before = server_ms(client)
        answer = await pages.post("/limits", data=form | {"over": "10m"})
        assert "Done: released." in (await pages.get(answer.headers["location"])).text
        log = words((await pages.get("/actions")).text)
    assert client.zcount("expirebridge:pending", "-inf", before) == 1
    assert client.zcount("expirebridge:pending", before + 300_000, "inf") == 1
    assert re.findall(r"(hold|release) all 1 (released|on hold)", log) == [
        ("release", "released"), ("hold", "on hold")
    ]  # fmt: skip


async def test_only_the_dashboard_s_own_page_holds_and_a_read_only_one_does_not(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.hold(tag="c9")
    async with asking() as pages:
        assert 'method="post"' not in (await pages.get("/limits")).text
        refused = await pages.post("/limits", data=HOLD, headers={"origin": OWN})
    assert (refused.status_code, refused.text) == (403, "This dashboard is read only.")
    async with asking(actions=True) as pages:
        for headers in ({}, {"origin": "http://evil.example"}):
            assert (await pages.post("/limits", data=HOLD, headers=headers)).status_code == 403
    assert [hold.name for hold in await async_bridge.holds()] == ["tag c9"]


@pytest.mark.parametrize(
    "change",
    [
        {"action": "pause"}, {"action": ""}, {"kind": "id"}, {"kind": ""}, {"name": ""},
        {"name": "mail"}, {"kind": "tag", "name": "a b"}, {"kind": "all"}, {"for": "x"},
        {"for": "-1h"}, {"for": "0s"}, {"for": "6000w"}, {"reason": "x" * 1001},
    ],
)  # fmt: skip
async def test_no_form_breaks_the_page(
    asking: Asking, async_bridge: AsyncBridge, change: dict[str, str]
) -> None:
    async with asking(actions=True) as pages:
        answer = await pages.post("/limits", data=HOLD | change, headers={"origin": OWN})
    assert answer.status_code == 400, answer.text
    assert await async_bridge.holds() == []
