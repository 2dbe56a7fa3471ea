"""Other arguments for a task, by forms alone: the difference is shown before it is done."""

import base64
import contextlib
import html
import re
from typing import Any

import httpx
import pytest
import redis
from playwright.sync_api import Browser, expect

from expirebridge import AsyncBridge, Bridge, State, Task, web
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.fleet import digest_of
from expirebridge.task.keys import MAX_ARGS
from tests.kit.steps import claim, settle
from tests.web.serving import CHROMIUM, OWN, Asking, words

FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
KEYS = "k1:" + base64.b64encode(bytes(range(32))).decode()
AREA = re.compile(r'<textarea [^>]*name="(\w+)"[^>]*>\n?([^<]*)</textarea>')


def fields_of(page: str) -> dict[str, str]:
    """What the form on a page would send."""
    main = page.partition("<main")[2]
    return {
        name: html.unescape(value) for name, value in [*FIELD.findall(main), *AREA.findall(main)]
    }


async def form_of(client: httpx.AsyncClient, id: str = "a") -> dict[str, str]:
    """The fields of the form for a task's arguments."""
    answer = await client.get("/task/edit", params={"id": id})
    assert answer.status_code == 200, answer.text
    return fields_of(answer.text)


async def send(client: httpx.AsyncClient, form: dict[str, str], **more: str) -> httpx.Response:
    return await client.post("/task/edit", data={**form, **more}, headers={"origin": OWN})


async def get(bridge: AsyncBridge) -> Task:
    task = await bridge.get("a")
    assert task is not None
    return task


async def test_the_difference_is_shown_before_it_is_done(
    asking: Asking, async_bridge: AsyncBridge, store: Store, client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    shapes = {"mail.send": "(to, subject=..., *, copy=...)"}
    code = digest_of(shapes)
    store.run(claiming.heartbeat("me", 10, [], code=code, functions=1))
    store.run(fleet.declare(code, shapes))
    await async_bridge.make_task("mail.send", [1, "pass-word"], 60, id="a", kwargs={"copy": 2})
    async with asking(actions=True, credentials=web.Credentials(users={"ann": "x"})) as pages:
        pages.auth = httpx.BasicAuth("ann", "x")
        assert 'href="/task/edit?id=a">Edit arguments</a>' in (await pages.get("/task?id=a")).text
        form = await form_of(pages)
        assert form["args"] == '[\n  1,\n  "pass-word"\n]'
        preview = (await send(pages, form, args='[1, "new-word"]', kwargs="{}")).text
        assert "args[1] &#34;pass-word&#34; &#34;new-word&#34;" in words(preview)
        assert "kwargs[&#39;copy&#39;] 2 none" in words(preview)
        assert "They fit a signature that a running listener has declared." in preview
        assert "meanwhile" not in preview
        assert (await get(async_bridge)).args == [1, "pass-word"]
        done = await send(pages, fields_of(preview))
        assert (done.status_code, done.headers["location"]) == (303, "/task?id=a&told=edited")
        log = (await pages.get("/actions")).text
    task = await get(async_bridge)
    assert (task.args, task.kwargs) == ([1, "new-word"], {})
    assert "ann edit a 1 edited" in words(log)
    assert client.llen("expirebridge:actions") == 1
    assert "-word" not in caplog.text + log


async def test_what_does_not_fit_is_refused_before_anything_is_noted(
    asking: Asking, async_bridge: AsyncBridge, store: Store, client: redis.Redis
) -> None:
    shapes = {"mail.send": "(to)"}
    code = digest_of(shapes)
    store.run(claiming.heartbeat("me", 10, [], code=code, functions=1))
    store.run(fleet.declare(code, shapes))
    await async_bridge.make_task("mail.send", [1], 60, id="a")
    async with asking(actions=True) as pages:
        form = await form_of(pages)
        for more, reason in (
            ({"args": "[1, 2]"}, "mail.send(to): too many positional arguments"),
            ({"args": "1"}, "args: "),
            ({"args": ""}, "args: "),
            ({"kwargs": "[]"}, "kwargs: write a JSON object"),
            ({"args": f'["{"x" * MAX_ARGS}"]'}, "at most 65,536"),
            ({"args": "[" + " " * 8 * MAX_ARGS + "]"}, "the form is too large"),
            ({"id": "no id"}, "id="),
        ):
            answer = await send(pages, form, **more)
            assert (answer.status_code, reason in words(answer.text)) == (400, True), more
    assert (await get(async_bridge)).args == [1]
    assert client.exists("expirebridge:actions") == 0


async def test_an_edit_of_somebody_else_meanwhile_is_shown_first(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.make_task("mail.send", [1], 60, id="a")
    async with asking(actions=True) as pages:
        preview = (await send(pages, await form_of(pages), args="[2]")).text
        assert "Not checked: no running listener has declared the signature." in words(preview)
        await async_bridge.edit("a", [3])
        again = (await send(pages, fields_of(preview))).text
        assert "Somebody has changed them meanwhile" in again
        assert "args[0] 3 2" in words(again)
        assert (await get(async_bridge)).args == [3]
        done = await send(pages, fields_of(again))
        assert done.headers["location"] == "/task?id=a&told=edited%2C+not+checked"
        assert (await get(async_bridge)).args == [2]
        same = (await send(pages, await form_of(pages))).text
        assert "Nothing differs." in same
        assert "Change the arguments" not in same


async def test_it_comes_from_its_own_page_only_and_not_if_it_is_read_only(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.make_task("mail.send", [1], 60, id="a")
    async with asking(actions=True) as pages:
        form = fields_of((await send(pages, await form_of(pages), args="[2]")).text)
        assert (await pages.post("/task/edit", data=form)).status_code == 403
    async with asking() as pages:
        assert (await send(pages, form)).status_code == 403
        assert (await pages.get("/task/edit?id=a")).status_code == 403
        assert "Edit arguments" not in (await pages.get("/task?id=a")).text
    assert (await get(async_bridge)).args == [1]


async def test_what_is_hidden_cannot_be_edited_here(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.make_task("mail.send", ["pass-word"], 60, id="a")
    async with asking(actions=True) as pages:
        form = fields_of((await send(pages, await form_of(pages), args="[2]")).text)
    async with asking(actions=True, redact=web.without_arguments) as pages:
        assert "Edit arguments" not in (await pages.get("/task?id=a")).text
        for answer in (await pages.get("/task/edit?id=a"), await send(pages, form)):
            assert answer.status_code == 400
            assert "use expirebridge edit" in answer.text
            assert "pass-word" not in answer.text
    assert (await get(async_bridge)).args == ["pass-word"]


@pytest.mark.parametrize("state", ["running", "succeeded", "absent", "ledger"])
async def test_what_cannot_be_edited_says_so(
    asking: Asking, async_bridge: AsyncBridge, store: Store, client: redis.Redis, state: str
) -> None:
    if state != "absent":
        await async_bridge.make_task("mail.send", [1], 0, id="a")
    if state in {"running", "succeeded"}:
        claim(store)
    if state == "succeeded":
        settle(store, Settlement("a", "t", "succeeded"))
    if state == "ledger":
        client.hset("expirebridge:task:a", "ledger", "0 0")
    told = {
        "running": "is running: its arguments stay", "succeeded": "is succeeded", "absent": "",
        "ledger": "is of a ledger",
    }  # fmt: skip
    form = {"id": "a", "args": "[2]", "kwargs": "{}", "seen": "", "confirmed": "1"}
    async with asking(actions=True) as pages:
        for answer in (await pages.get("/task/edit?id=a"), await send(pages, form)):
            assert answer.status_code == (404 if state == "absent" else 400)
            assert told[state] in answer.text
        assert "Edit arguments" not in (await pages.get("/task?id=a")).text


async def test_what_it_cannot_open_is_not_offered(
    asking: Asking, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncBridge(url, keys=KEYS) as sealing:
        await sealing.make_task("mail.send", [1], 60, id="a")
    for keys in ("", KEYS):
        monkeypatch.setenv("EXPIREBRIDGE_KEYS", keys)
        async with asking(actions=True) as pages:
            offered = "Edit arguments" in (await pages.get("/task?id=a")).text
            opened = (await pages.get("/task/edit?id=a")).status_code
        assert (offered, opened) == ((True, 200) if keys else (False, 400))


async def test_arguments_come_back_as_they_were_whatever_they_are(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    args: list[Any] = ['</textarea><script>alert("x")</script>', "\n é \t\u2028", 2**63, 1.5, None]
    kwargs = {"a&b": "'\"<", "x" * 200: ["y" * 60_000]}
    await async_bridge.make_task("mail.send", args, 60, id="a", kwargs=kwargs)
    async with asking(actions=True) as pages:
        form = await form_of(pages)
        page = (await pages.get("/task/edit?id=a")).text
        assert "<script>alert" not in page
        preview = (await send(pages, form)).text
        assert "Nothing differs." in preview
        changed = (await send(pages, form, args='["<b>"]')).text
        assert "<b>" not in changed.partition("<tbody>")[2]
        await send(pages, fields_of(changed))
    task = await get(async_bridge)
    assert (task.args, task.kwargs) == (["<b>"], kwargs)


async def test_a_failed_one_is_retried_with_them(
    asking: Asking, async_bridge: AsyncBridge, store: Store
) -> None:
    await async_bridge.make_task("mail.send", [1], 0, id="a")
    claim(store)
    settle(store, Settlement("a", "t", "failed"))
    async with asking(actions=True) as pages:
        preview = (await send(pages, await form_of(pages), args="[2]")).text
        assert "The task stays failed: Retry runs it with them." in preview
        await send(pages, fields_of(preview))
        assert (await get(async_bridge)).state is State.FAILED
        retry = {"id": "a", "action": "retry"}
        await pages.post("/task", data=retry, headers={"origin": OWN})
    assert [task.args for task in claim(store, "u").tasks] == [b"[2]"]


@pytest.mark.rest
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_it_needs_no_script(browser: Browser, dashboard: str, bridge: Bridge) -> None:
    bridge.make_task("mail.send", ["a"], 600, id="a")
    with contextlib.closing(browser.new_context(java_script_enabled=False)) as context:
        page = context.new_page()
        page.goto(f"{dashboard}/task?id=a")
        page.get_by_role("link", name="Edit arguments").click()
        page.get_by_label("Positional").fill('["b"]')
        page.get_by_role("button", name="Show the difference").click()
        expect(page.get_by_role("row").nth(1)).to_have_text('args[0]"a""b"')
        page.get_by_role("button", name="Change the arguments").click()
        expect(page.get_by_role("status")).to_have_text("Done: edited, not checked.")
    task = bridge.get("a")
    assert task is not None
    assert task.args == ["b"]
