"""A signal from the dashboard: its form, what is noted, and what its page shows of it."""

import httpx
import pytest
import redis

from expirebridge import AsyncBridge, Change, State, Task, web
from expirebridge.store.client import Store
from tests.kit.steps import claim
from tests.web.serving import OWN, Asking, words

LINK = '<a class="button" href="/task/signal?id=pay-42">Signal</a>'


@pytest.fixture(autouse=True)
async def waiting(async_bridge: AsyncBridge) -> None:
    """A task that waits for a signal."""
    await async_bridge.make_task("orders.cancel", [42], "15m", id="pay-42", on_signal="orders.ship")


async def get(bridge: AsyncBridge) -> Task:
    task = await bridge.get("pay-42")
    assert task is not None
    return task


async def send(pages: httpx.AsyncClient, payload: str = "null", **more: str) -> httpx.Response:
    form = {"id": "pay-42", "payload": payload, **more}
    return await pages.post("/task/signal", data=form, headers={"origin": OWN})


async def test_who_has_signed_in_signals_with_a_payload(
    asking: Asking, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(actions=True, credentials=web.Credentials(users={"ann": "x"})) as pages:
        pages.auth = httpx.BasicAuth("ann", "x")
        page = (await pages.get("/task?id=pay-42")).text
        assert LINK in page
        assert "On a signal orders.ship" in words(page)
        assert "waits for a signal until" in page
        form = words((await pages.get("/task/signal?id=pay-42")).text)
        assert "It runs orders.ship now, and never orders.cancel , which is due in" in form
        done = await send(pages, '{"ref": "pass-word"}')
        assert (done.status_code, done.headers["location"]) == (
            303,
            "/task?id=pay-42&told=signalled",
        )
        page = (await pages.get("/task?id=pay-42")).text
        log = (await pages.get("/actions")).text
        again = await send(pages, "7")
        assert again.headers["location"] == "/task?id=pay-42&told=signalled+before"
        arguments = (await pages.get("/task/arguments?id=pay-42")).text
    signal = (await get(async_bridge)).signal
    assert signal is not None
    assert (signal.payload, signal.by) == ({"ref": "pass-word"}, "ann")
    assert LINK not in page
    for told in ("Signalled by ann", "Instead of orders.cancel", "ms ago signal"):
        assert told in words(page).replace("0s ago", "0ms ago"), told
    assert "ann signal pay-42 1 signalled" in words(log)
    assert "Show arguments, key, signal and result" in page
    assert "pass-word" in arguments
    assert "pass-word" not in page + log + caplog.text


async def test_a_redaction_hides_what_a_signal_said(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.signal("pay-42", "pass-word")
    async with asking(redact=web.without_arguments) as pages:
        for path in ("/task?id=pay-42", "/task/arguments?id=pay-42"):
            assert "pass-word" not in (await pages.get(path)).text


async def test_a_paused_one_is_signalled_and_stays_so(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.pause("pay-42")
    async with asking(actions=True) as pages:
        form = words((await pages.get("/task/signal?id=pay-42")).text)
        assert "It runs orders.ship once it is resumed, and never orders.cancel ." in form
        await send(pages)
    task = await get(async_bridge)
    assert (task.state, task.func) == (State.PAUSED, "orders.ship")
    assert task.signal is not None
    assert (task.signal.payload, task.signal.by) == (None, "anybody")


async def test_what_is_no_payload_is_refused_before_anything_is_noted(
    asking: Asking, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    async with asking(actions=True) as pages:
        for payload, told in (
            ("{ref: 7}", "payload: "),
            ("", "payload: "),
            ("1, 2", "payload: "),
            ("18446744073709551616", "an integer is beyond 64 bits"),
            (" " * 8 * 64 * 1024, "the form is too large"),
        ):
            answer = await send(pages, payload)
            assert (answer.status_code, told in words(answer.text)) == (400, True), payload
        assert (await send(pages, id="no id")).status_code == 400
        too_long = await send(pages, '"' + "x" * 64 * 1024 + '"')
        assert (too_long.status_code, "may have 65,536" in too_long.text) == (400, True)
        assert client.exists("expirebridge:actions") == 0
        longest = await send(pages, '"' + "é" * (32 * 1024 - 1) + '"')
        assert longest.status_code == 303
    assert (await get(async_bridge)).func == "orders.ship"


async def test_it_comes_from_its_own_page_only_and_not_if_it_is_read_only(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    async with asking(actions=True) as pages:
        foreign = await pages.post("/task/signal", data={"id": "pay-42", "payload": "null"})
        assert foreign.status_code == 403
    async with asking() as pages:
        assert (await send(pages)).status_code == 403
        assert (await pages.get("/task/signal?id=pay-42")).status_code == 403
        assert LINK not in (await pages.get("/task?id=pay-42")).text
    assert (await get(async_bridge)).signal is None


async def test_what_waits_for_none_has_no_form(
    asking: Asking, async_bridge: AsyncBridge, store: Store, client: redis.Redis
) -> None:
    async with asking(actions=True) as pages:
        client.hset("expirebridge:task:pay-42", "ledger", "0 0")
        of_ledger = await send(pages)
        assert (of_ledger.status_code, "call ledger.signal" in of_ledger.text) == (400, True)
        client.hdel("expirebridge:task:pay-42", "ledger")
        await async_bridge.run_now("pay-42")
        claim(store)
        assert await async_bridge.signal("pay-42") is Change.RUNNING
        assert LINK not in (await pages.get("/task?id=pay-42")).text
        refused = await pages.get("/task/signal?id=pay-42")
        assert (refused.status_code, "waits for no signal" in refused.text) == (400, True)
        assert (await pages.get("/task/signal?id=nobody")).status_code == 404
        assert (await pages.get("/task/signal")).status_code == 400
