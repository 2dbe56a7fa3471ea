"""What the dashboard shows of tasks, and finds, asked without a browser."""

import re

import httpx
import pytest
import redis

from expirebridge import Bridge
from expirebridge.web import search
from tests.web.serving import Asking


async def found(pages: httpx.AsyncClient, query: str) -> list[str]:
    shown = (await pages.get(f"/tasks?{query}")).text
    return re.findall(r"href=\"/task\?id=([^\"]+)\"", shown)


async def test_tasks_are_found_by_the_beginning_of_their_ids(
    asking: Asking, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_tasks(
        [
            {"func": "a.b" if n % 2 else "c.d", "delay": 600 + n, "id": f"order-{n:03}",
             "tags": [f"t-{n % 3}"]}
            for n in range(120)
        ]
        + [{"func": "a.b", "delay": 600, "id": f"mail-{n}"} for n in range(9)]
    )  # fmt: skip
    bridge.cancel_all(["order-000", "order-001"])
    bridge.pause("order-002")
    async with asking() as pages:
        by_state = ["order-003", "order-002", "order-001", "order-000"]
        assert sorted(await found(pages, "id=order-00"), reverse=True)[-4:] == by_state
        assert await found(pages, "id=order-00&state=cancelled") == ["order-001", "order-000"]
        assert await found(pages, "id=order-01&func=c.d") == [
            f"order-01{n}" for n in (0, 2, 4, 6, 8)
        ]
        assert set(await found(pages, "id=order-01&tag=t-1")) == {
            "order-010", "order-013", "order-016", "order-019"
        }  # fmt: skip
        assert await found(pages, "id=rder") == []
        # What another client put there is no task.
        client.zadd("expirebridge:pending", {"odd": 5, "odd one": 6, "odd" * 99: 7})
        for id in ("odd one", "odd" * 99):
            client.hset(f"expirebridge:task:{id}", "call", "a.b?[]")
        assert await found(pages, "id=odd") == []
        # Page by page, each once.
        shown = (await pages.get("/tasks?id=order&state=pending")).text
        seen = re.findall(r"/task\?id=([^\"]+)", shown)
        while more := re.search(r"rel=\"next\" href=\"([^\"]+)\"", shown):
            shown = (await pages.get(more[1].replace("&amp;", "&"))).text
            seen += re.findall(r"/task\?id=([^\"]+)", shown)
        assert seen == [f"order-{n:03}" for n in range(3, 120)]


async def test_it_says_where_it_did_not_look_at_all_ids(
    asking: Asking, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SOUGHT", 60)
    monkeypatch.setattr(search, "SOUGHT_AT_ONCE", 10)
    bridge.make_tasks([{"func": "a.b", "delay": 600 + n, "id": f"n-{n}"} for n in range(100)])
    bridge.make_task("a.b", [], 900, id="far")
    bridge.make_task("a.b", [], 900, id="far-too")
    async with asking() as pages:
        shown = (await pages.get("/tasks?id=far-")).text
        assert "Not all ids of pending tasks were looked at" in shown
        assert "None of the 10 tasks looked at so far matches" in shown
        assert "all that can match" not in shown
        [there] = re.findall(r"were looked at: <a href=\"([^\"]+)\"", shown)
        shown = (await pages.get(there.replace("&amp;", "&"))).text
        assert "None of the 60 tasks looked at so far matches" in shown
        [more] = re.findall(r"rel=\"next\" href=\"([^\"]+)\"", shown)
        assert re.findall(
            r"/task\?id=([^\"]+)", (await pages.get(more.replace("&amp;", "&"))).text
        ) == ["far-too"]
        # The task of this very id is found wherever it stands.
        assert await found(pages, "id=far") == ["far"]
        assert await found(pages, "id=far&state=pending") == ["far"]


async def test_the_box_at_the_top_leads_to_the_task_or_to_those_that_begin_so(
    asking: Asking, bridge: Bridge
) -> None:
    bridge.make_task("a.b", [], 600, id="order-1")
    bridge.make_task("a.b", [], 600, id="order-17")
    async with asking() as pages:
        assert 'action="/find"' in (await pages.get("/")).text
        for id, leads_to in {
            "order-1": "/task?id=order-1", " order-17 ": "/task?id=order-17",
            "order": "/tasks?id=order", "no-such": "/tasks?id=no-such",
        }.items():  # fmt: skip
            answer = await pages.get("/find", params={"id": id})
            assert (answer.status_code, answer.headers["location"]) == (303, leads_to)
        assert (await pages.get("/find?id=a%20b")).status_code == 400
        assert await found(pages, "id=order") == ["order-1", "order-17"]


async def test_all_that_begin_so_can_be_acted_on(asking: Asking, bridge: Bridge) -> None:
    bridge.make_tasks([{"func": "a.b", "delay": 600, "id": f"m-{n}"} for n in range(150)])
    bridge.make_task("a.b", [], 600, id="other")
    async with asking(actions=True) as pages:
        form = {"id": "m-", "state": "pending", "action": "pause"}
        assert "Pause 150 tasks?" in (await pages.get("/bulk", params=form)).text
        own = {"origin": str(pages.base_url)}
        await pages.post("/bulk", data=form, headers=own)
    assert (bridge.count().paused, bridge.count().pending) == (150, 1)


async def test_what_is_no_task_does_not_stop_an_action_on_all(
    asking: Asking, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("a.b", [], 600, id="m")
    client.zadd("expirebridge:pending", {"odd one": 5})
    client.hset("expirebridge:task:odd one", "call", "a.b?[]")
    async with asking(actions=True) as pages:
        form = {"state": "pending", "action": "cancel"}
        done = await pages.post("/bulk", data=form, headers={"origin": str(pages.base_url)})
    assert (done.status_code, "<b>1</b> cancelled" in done.text) == (200, True)
    assert bridge.count().cancelled == 1


async def test_a_snoozed_task_shows_why_it_waits_and_how_often(
    asking: Asking, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("reports.fetch", [], "1h", id="early")
    client.hset("expirebridge:task:early", mapping={"snoozes": 3, "error": "it is not ready"})
    async with asking() as pages:
        shown = (await pages.get("/task?id=early")).text
    assert "<small>3 snoozed</small>" in shown
    assert "it is not ready" in shown
