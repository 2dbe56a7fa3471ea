"""The reason for a task's state, on its page."""

import pytest
import redis

from expirebridge import Bridge, web
from expirebridge.store.client import Store
from expirebridge.task.calls.claiming import Settlement
from tests.kit.steps import claim, settle
from tests.kit.waiting import declare, hold_slots, park
from tests.web.serving import Asking, words


async def page_of(asking: Asking, id: str, **options: object) -> str:
    async with asking(**options) as client:
        return str((await client.get(f"/task?id={id}")).text)


async def test_the_page_says_why_and_escapes_it(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.hold(func="mail.send", reason="<b>down</b>", by="ann")
    bridge.make_task("mail.send", [], 0, id="a")
    claim(store)
    page = await page_of(asking, "a")
    told = "on hold: func mail.send, by ann: &lt;b&gt;down&lt;/b&gt;, 1st in line"
    assert f'<p class="why">{told}</p>' in page


async def test_the_page_asks_the_listeners_about_a_due_task(asking: Asking, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [], 0, id="a")
    assert "but no listener sends heartbeats" in await page_of(asking, "a")


async def test_a_redaction_hides_errors_and_the_values_of_lanes(
    asking: Asking, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    tasks = [{"func": "sms.send", "args": [17], "delay": 0, "id": id} for id in ("ended", "again")]
    bridge.make_tasks(tasks)
    claim(store)
    settle(store, Settlement("ended", "t", "failed", 0, "x\nValueError: sms to 17"))
    settle(store, Settlement("again", "t", "retry", 60, "x\nValueError: sms to 17"))
    declare(client, {"sms": {"most": 2}, "rate": {"starts": 1, "every": 1000}})
    hold_slots(client, "sms=17", "x")
    for id in ("waits", "granted"):
        bridge.make_task("sms.send", [17], 3600, id=id)
    park(client, "waits", "sms=17")
    client.zadd("expirebridge:grants", {"granted": 1})
    client.hset("expirebridge:task:granted", "slots", "rate=17")
    told = {
        "ended": "ValueError: sms to 17",
        "again": "attempt 1 failed: ValueError: sms to 17; the next one is due in",
        "waits": "waits for a slot of sms=17: 1 of 2 taken, 1st in line; taken by x (gone)",
        "granted": "waits for a start of rate=17: one start every 1ms; its start is due in",
    }
    hidden = {
        "ended": "ago: (not shown)",
        "again": "attempt 1 failed; the next one is due in",
        "waits": "waits for a slot of sms=(not shown): 1 of 2 taken, 1st in line",
        "granted": "waits for a start of rate=(not shown): one start every 1ms; its start is due",
    }
    for id, text in told.items():
        assert text in words(await page_of(asking, id))
        page = words(await page_of(asking, id, redact=web.without_arguments))
        assert hidden[id] in page
        assert text not in page
        assert "=17" not in page
        assert "to 17" not in page


@pytest.mark.parametrize("error", ["", "missed: the next tick was due"])
async def test_a_redaction_invents_no_reason_for_a_cancelled_task(
    asking: Asking, bridge: Bridge, client: redis.Redis, error: str
) -> None:
    bridge.make_task("mail.send", [], 60, id="a")
    bridge.cancel("a")
    if error:
        client.hset("expirebridge:task:a", "error", error)
    hidden = words(await page_of(asking, "a", redact=web.without_arguments))
    assert ("ago, by request" in hidden) == (not error)
