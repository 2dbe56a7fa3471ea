"""The dashboard's pages of groups, asked without a browser."""

import re

import httpx
import pytest
import redis

from expirebridge import AsyncBridge, Bridge, GroupState, State, Then, web
from expirebridge.store.client import Store
from expirebridge.task.calls.claiming import Settlement
from tests.kit.steps import claim, settle, state_of
from tests.web.serving import OWN, Asking, words

THEN = Then("mail.report", ["its secret"])
LATER = {"func": "mail.send", "args": ["secret"], "delay": "1h"}


@pytest.fixture
def group(bridge: Bridge, store: Store) -> None:
    """`import-7`: of 4 members one has succeeded, one has failed, and two are not due."""
    now = LATER | {"delay": 0}
    bridge.make_group("import-7", [now, now, LATER, LATER], then=THEN)
    claim(store)
    settle(
        store,
        Settlement("import-7@g0", "t", "succeeded"),
        Settlement("import-7@g1", "t", "failed", 0, "no such address"),
    )


async def state(bridge: AsyncBridge, name: str = "import-7") -> GroupState:
    group = await bridge.get_group(name)
    assert group is not None
    return group.state


@pytest.mark.usefixtures("group")
async def test_groups_are_listed_with_how_far_they_are(asking: Asking, bridge: Bridge) -> None:
    bridge.make_group("aaa", [])
    async with asking() as pages:
        page = (await pages.get("/groups")).text
    rows = [words(row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)][1:]
    assert rows[0].startswith("import-7 closed 1 of 4 1 import-7@then ")
    assert rows[1].startswith("aaa ended 0 of 0 0 ")
    assert 'href="/groups?name=import-7&amp;state=failed">1<' in page
    assert re.findall(r'<progress max="(\d+)" value="(\d+)"', page) == [("4", "1"), ("1", "1")]


async def test_without_groups_the_page_says_so(asking: Asking) -> None:
    async with asking() as pages:
        assert "There is no group." in (await pages.get("/groups")).text
        missing = await pages.get("/groups?name=import-7")
    assert (missing.status_code, "No group has the name import-7." in missing.text) == (404, True)


@pytest.mark.usefixtures("group")
async def test_a_group_has_a_page_with_its_members(asking: Asking) -> None:
    async with asking() as pages:
        page = (await pages.get("/groups?name=import-7")).text
        failed = words((await pages.get("/groups?name=import-7&state=failed")).text)
        bad = [await pages.get(f"/groups?name={query}") for query in ("a%20b", "x&state=y")]
    told = words(page)
    assert "Members that have ended 1 of 4 Succeeded 1 Failed 1 last " in told
    assert "If a member fails it is waited for Follow-up import-7@then " in told
    assert re.findall(r"(import-7@g\d) (\w+) mail\.send", told) == [
        ("import-7@g0", "succeeded"), ("import-7@g1", "failed"),
        ("import-7@g2", "pending"), ("import-7@g3", "pending"),
    ]  # fmt: skip
    assert re.findall(r"(import-7@g\d) (\w+) mail\.send", failed) == [("import-7@g1", "failed")]
    assert failed.count("no such address") == 1
    assert "secret" not in page
    assert [answer.status_code for answer in bad] == [400, 404]


@pytest.mark.parametrize(("count", "counted"), [(2, "2 members are"), (1, "1 member is")])
async def test_a_page_asks_before_it_cancels(
    asking: Asking, bridge: Bridge, count: int, counted: str
) -> None:
    bridge.make_group("import-7", [LATER] * count, then=THEN)
    async with asking(actions=True) as pages:
        page = words((await pages.get("/groups?name=import-7")).text)
    assert f"Its follow-up will not run, and {counted} cancelled." in page


async def test_members_are_shown_page_by_page(asking: Asking, bridge: Bridge) -> None:
    bridge.make_group("many", [LATER] * 60)
    async with asking() as pages:
        first = (await pages.get("/groups?name=many")).text
        [more] = re.findall(r'href="(/groups\?name=many&amp;cursor=[^"]*)"', first)
        rest = (await pages.get(more.replace("&amp;", "&"))).text
        bad = await pages.get("/groups?name=many&cursor=x")
    seen = [re.findall(r">many@g(\d+)<", page) for page in (first, rest)]
    assert [len(page) for page in seen] == [50, 10]
    assert {*seen[0], *seen[1]} == {str(number) for number in range(60)}
    assert bad.status_code == 400


@pytest.mark.usefixtures("group")
async def test_a_task_s_page_names_its_group_and_what_a_follow_up_waits_for(
    asking: Asking, bridge: Bridge
) -> None:
    bridge.make_task("mail.send", delay=60, id="x@then")
    async with asking() as pages:
        member = (await pages.get("/task?id=import-7@g2")).text
        follow_up = (await pages.get("/task?id=import-7@then")).text
        other = (await pages.get("/task?id=x@then")).text
    fact = "import-7 closed, 3 of 4 members left, 1 failed"
    assert f" Group {fact} " in words(member)
    assert f" Follow-up of group {fact} " in words(follow_up)
    assert "waits for group import-7: 3 of 4 members left, 1 failed" in follow_up
    assert 'href="/groups?name=import-7"' in member
    assert 'href="/groups?name=' not in other


async def test_groups_of_several_partitions_are_shown(asking: Asking, bridge: Bridge) -> None:
    bridge.create_partitions(4)
    for number in range(8):
        bridge.make_group(f"g{number}", [LATER] * number, then=THEN, close=number > 3)
    async with asking(actions=True) as pages:
        page = (await pages.get("/groups")).text
        assert sorted(re.findall(r">(g\d)</a>", page)) == [f"g{number}" for number in range(8)]
        for number in range(8):
            one = words((await pages.get(f"/groups?name=g{number}")).text)
            assert f"0 of {number} Succeeded" in one
            assert one.count("mail.send") == number
            assert "waits for group" in (await pages.get(f"/task?id=g{number}@then")).text
            form = {"name": f"g{number}", "action": "cancel"}
            answer = await pages.post("/groups", data=form, headers={"origin": OWN})
            assert "Done: cancelled." in (await pages.get(answer.headers["location"])).text


@pytest.mark.usefixtures("group")
async def test_a_redaction_hides_the_errors_of_members(asking: Asking) -> None:
    async with asking(redact=web.without_arguments) as pages:
        page = (await pages.get("/groups?name=import-7")).text
    assert "import-7@g1" in page
    assert "no such address" not in page


# Acting


@pytest.mark.usefixtures("group")
async def test_a_group_is_closed_and_cancelled_and_that_is_recorded(
    asking: Asking, async_bridge: AsyncBridge, store: Store
) -> None:
    await async_bridge.make_group("crawl", [LATER], then=THEN, close=False)
    credentials = web.Credentials(users={"ann": "x"})
    async with asking(actions=True, credentials=credentials) as pages:
        pages.auth = httpx.BasicAuth("ann", "x")
        pages.headers["origin"] = OWN
        for action, told in (("close", "closed"), ("cancel", "cancelled")):
            page = (await pages.get("/groups?name=crawl")).text
            assert f'name="action" value="{action}"' in page
            form = {"name": " crawl ", "action": action}
            answer = await pages.post("/groups", data=form)
            assert answer.status_code == 303
            page = (await pages.get(answer.headers["location"])).text
            assert f"Done: {told}." in page
        page = (await pages.get("/groups?name=crawl")).text
        assert 'method="post"' not in page
        assert state_of(store, "crawl@then") is State.CANCELLED
        answer = await pages.post("/groups", data={"name": "nine", "action": "close"})
        assert (await pages.get(answer.headers["location"])).status_code == 404
        log = (await pages.get("/actions")).text
    assert re.findall(r"ann (\w+ group) (\w+) 1 (closed|cancelled|not found)", words(log)) == [
        ("close group", "nine", "not found"),
        ("cancel group", "crawl", "cancelled"),
        ("close group", "crawl", "closed"),
    ]
    assert 'href="/groups?name=crawl"' in log


@pytest.mark.usefixtures("group")
async def test_only_the_dashboard_s_own_page_changes_groups_and_a_read_only_one_does_not(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    form = {"name": "import-7", "action": "cancel"}
    async with asking() as pages:
        for page in ("/groups", "/groups?name=import-7"):
            assert 'method="post"' not in (await pages.get(page)).text
        refused = await pages.post("/groups", data=form, headers={"origin": OWN})
    assert (refused.status_code, refused.text) == (403, "This dashboard is read only.")
    async with asking(actions=True) as pages:
        for headers in ({}, {"origin": "http://evil.example"}):
            assert (await pages.post("/groups", data=form, headers=headers)).status_code == 403
    assert await state(async_bridge) is GroupState.CLOSED


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    "change", [{"action": "pause"}, {"action": ""}, {"name": "a b"}, {"name": ""}]
)
async def test_no_form_breaks_the_page(
    asking: Asking, async_bridge: AsyncBridge, change: dict[str, str]
) -> None:
    form = {"name": "import-7", "action": "cancel"} | change
    async with asking(actions=True) as pages:
        answer = await pages.post("/groups", data=form, headers={"origin": OWN})
    assert answer.status_code == 400, answer.text
    assert await state(async_bridge) is GroupState.CLOSED


@pytest.mark.usefixtures("group")
async def test_what_is_slipped_into_a_group_is_text(asking: Asking, client: redis.Redis) -> None:
    client.hset("expirebridge:group:import-7", "then", "<script>x@then")
    client.hset("expirebridge:task:import-7@g1", "error", "<script>")
    async with asking() as pages:
        for path in ("/groups", "/groups?name=import-7"):
            page = (await pages.get(path)).text
            assert "&lt;script&gt;" in page
            assert "<script>" not in page.partition("<main")[2]
