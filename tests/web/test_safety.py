"""Who comes in, what counts as an action of a person, and what a page may do."""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from expirebridge import AsyncBridge, State, handler, web
from expirebridge.errors import InvalidSetting
from expirebridge.settings import Settings
from expirebridge.web import guard
from expirebridge.web.guard import MOST_WAITING, network_of, pause_after
from expirebridge.web.http_connection import MOST_CONNECTIONS
from expirebridge.web.live import MAX_STREAMS
from tests.kit.half_open import half_open, until_closed
from tests.kit.invoked import run
from tests.kit.patience import PATIENCE
from tests.kit.private_keys import K1
from tests.kit.processes import COMMAND
from tests.kit.servers import AnyServer
from tests.kit.witness import Witness, listening
from tests.web.serving import OWN, Asking, words

STATIC = Path(web.__file__).parent / "static"
TEMPLATES = Path(web.__file__).parent / "templates"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "dashboard.md"
PAGES = [
    "/", "/tasks", "/tasks?state=failed", "/task?id=a", "/limits", "/actions",
    "/task/arguments?id=a",
]  # fmt: skip
ODD = "<script>alert('x')</script>\"'&"


# Who comes in


@contextlib.asynccontextmanager
async def from_address(app: Starlette, address: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url=OWN) as client:
        yield client


async def test_each_failure_makes_the_next_attempt_wait_longer(url: str) -> None:
    app = web.app(url, credentials=web.Credentials(users={"ann": "x"}))
    took = []
    async with from_address(app, "192.0.2.1") as client:
        for _ in range(3):
            # To be asked for a password is no attempt.
            assert (await client.get("/static/icon.svg")).status_code == 401
            began = time.monotonic()
            wrong = await client.get("/static/icon.svg", auth=("ann", "y"))
            took.append(time.monotonic() - began)
            assert wrong.status_code == 401
        assert took[1] >= 0.5
        assert took[2] >= 1.0
        # A right one waits as long, so that nothing is to be learned from it, and is not refused.
        assert (await client.get("/static/icon.svg", auth=("ann", "x"))).status_code == 200


async def test_who_tries_passwords_shuts_nobody_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_for = [0.0]
    """How long each pause takes; the last one, how long the next ones will."""

    def pause(_: int) -> float:
        waiting_for.append(waiting_for[-1])
        return waiting_for[-1]

    monkeypatch.setattr(guard, "pause_after", pause)
    app = web.app(url, credentials=web.Credentials(users={"ann": "x", "bob": "y"}))
    icon = "/static/icon.svg"
    async with from_address(app, "192.0.2.1") as attacker, from_address(app, "192.0.2.2") as other:
        assert (await attacker.get(icon, auth=("ann", "x"))).status_code == 200
        for together in (1, MOST_WAITING):
            tries = [attacker.get(icon, auth=("ann", "z")) for _ in range(together)]
            assert {attempt.status_code for attempt in await asyncio.gather(*tries)} == {401}
        waiting_for[:] = [3600.0]  # from here on, each waits for longer than the test
        waiting = {
            asyncio.create_task(attacker.get(icon, auth=("bob", f"{n}")))
            for n in range(4 * MOST_WAITING)
        }
        refused = set[asyncio.Task[httpx.Response]]()
        while len(waiting) > MOST_WAITING:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        assert len(waiting_for) == 1 + MOST_WAITING
        statuses = {attempt.result().status_code for attempt in refused}
        assert statuses == {429}
        assert {attempt.result().headers["retry-after"] for attempt in refused} == {"8"}
        # Nothing is learned from what is refused: not even that it would have been right.
        assert (await attacker.get(icon, auth=("bob", "y"))).status_code == 429
        # Who was signed in goes on, behind the same address, too; elsewhere, nobody notices.
        assert (await attacker.get(icon, auth=("ann", "x"))).status_code == 200
        assert (await other.get(icon, auth=("bob", "y"))).status_code == 200
        assert not any(attempt.done() for attempt in waiting)
        for attempt in waiting:
            attempt.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        # Those that went away wait no longer: there is room for the next one.
        again = asyncio.create_task(attacker.get(icon, auth=("bob", "w")))
        while len(waiting_for) == 1 + MOST_WAITING:
            assert not again.done()
            await asyncio.sleep(0)
        again.cancel()


def test_pauses_grow_to_a_limit_by_networks() -> None:
    assert [pause_after(n) for n in (1, 2, 3, 4, 5, 6, 10**9)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:1::")
    assert network_of("") == ""


@pytest.mark.parametrize("page", [*PAGES, "/live", "/bulk?action=cancel", "/static/dashboard.css"])
async def test_nothing_is_shown_without_the_token(asking: Asking, page: str) -> None:
    async with asking(credentials=web.Credentials(token="s3cret")) as client:
        refused = await client.get(page)
        wrong = await client.get(page, headers={"authorization": "Bearer s3cre"})
    assert (refused.status_code, wrong.status_code) == (401, 401)
    assert refused.text == wrong.text == "Sign in."
    assert refused.headers["www-authenticate"].startswith("Basic realm=")


async def test_a_token_or_a_password_opens_it(asking: Asking) -> None:
    credentials = web.Credentials(token="s3cret", users={"ann": "pässword"})
    right = [
        {"headers": {"authorization": "Bearer s3cret"}},
        {"auth": ("whoever", "s3cret")},
        {"auth": ("ann", "pässword")},
    ]
    wrong = [
        {"auth": ("ann", "")},
        {"auth": ("bob", "")},
        {"auth": ("", "")},
        {"auth": ("bob", "pässword")},
        {"headers": {"authorization": "Bearer pässword".encode()}},
        {"headers": {"authorization": "Basic ???"}},
        {"headers": {"authorization": b"Basic \xff"}},
        {"headers": {"authorization": "Basic"}},
        {"headers": {"authorization": "Digest s3cret"}},
    ]
    async with asking(credentials=credentials) as client:
        assert [(await client.get("/", **one)).status_code for one in right] == [200] * 3  # type: ignore[arg-type]
    for one in wrong:
        # Each is the first from its address: the next would have to wait.
        async with asking(credentials=credentials) as client:
            assert (await client.get("/", **one)).status_code == 401  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["s3cret\n", " s3cret", "s3\ncret", "s3cret\t", "s3\x7fcret"])
def test_a_token_that_no_header_can_hold_is_refused(token: str) -> None:
    with pytest.raises(InvalidSetting, match="the token begins or ends with a space") as refused:
        web.Credentials(token=token)
    assert "cret" not in str(refused.value)


@pytest.fixture(scope="module")
def on_a_path(shared_server: AnyServer) -> Iterator[httpx.Client]:
    """A client of the command, which serves a path to one user."""
    env = {"EXPIREBRIDGE_DASHBOARD_USERS": "ann:x"}
    options = ("--root-path", "/tasks/")
    with commanded(shared_server.url, *options, auth=("ann", "x"), env=env) as (_, client):
        yield client


def test_a_forged_address_does_not_shorten_the_pause(on_a_path: httpx.Client) -> None:
    took = []
    for number in range(3):
        began = time.monotonic()
        forged = {"x-forwarded-for": f"192.0.2.{number}"}
        answer = on_a_path.get("", auth=("ann", f"wrong {number}"), headers=forged)
        assert answer.status_code == 401
        took.append(time.monotonic() - began)
    assert took[1] >= 0.5
    assert took[2] >= 1.0


ROOTED = ["/", "/tasks", "/limits", "/task?id=a", "/task/arguments?id=a", "/static/icon.svg"]


@pytest.mark.parametrize("root", ["/tasks", "/tasks/", "/ops/timers"])
async def test_a_proxy_may_keep_the_path_or_take_it_off(
    url: str, async_bridge: AsyncBridge, root: str
) -> None:
    await async_bridge.make_task("mail.send", ["x"], 60, id="a")
    dashboard = web.app(url, actions=True)
    transport = httpx.ASGITransport(web.under(dashboard, root))
    base = root.rstrip("/")
    async with (
        dashboard.router.lifespan_context(dashboard),
        httpx.AsyncClient(transport=transport, base_url=OWN) as client,
    ):
        for page in ROOTED:
            kept, taken_off = [await client.get(path) for path in (base + page, page)]
            assert (kept.status_code, taken_off.status_code) == (200, 200), page
            links = set(re.findall(r' (?:href|src|action)="(/[^"]*)"', kept.text + taken_off.text))
            assert all(link.startswith(f"{base}/") for link in links), links
            assert links or page.startswith(("/static", "/task/arguments"))
        form, own = {"id": "a", "action": "pause"}, {"origin": OWN}
        for path in (f"{base}/task", "/task"):
            acted = await client.post(path, data=form, headers=own)
            assert acted.headers["location"].startswith(f"{base}/task?id=a")
        assert (await client.get(f"{base}/nothing")).status_code == 404


@pytest.mark.rest
def test_the_command_serves_a_path(on_a_path: httpx.Client) -> None:
    page = on_a_path.get("")  # as a proxy sends it that keeps the path
    assert str(page.url).endswith("/tasks/")
    assert 'href="/tasks/limits"' in page.text
    assert on_a_path.get("limits").status_code == 200


@pytest.mark.parametrize(
    "root", ["tasks", "/a b", "/a?b", "//tasks", "/task", "/static", "http://x"]
)
def test_what_is_no_path_is_refused(url: str, root: str) -> None:
    with pytest.raises(InvalidSetting, match=f"root-path='{re.escape(root)}': "):
        web.under(web.app(url), root)


@pytest.mark.parametrize(
    "empty", [{}, {"token": ""}, {"users": {"ann": ""}}, {"users": {"a:b": "c"}}]
)
def test_empty_secrets_are_refused(empty: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        web.Credentials(**empty)  # type: ignore[arg-type]
    assert "s3cret" not in repr(web.Credentials(token="s3cret", users={"a": "s3cret"}))


def test_the_command_refuses_other_addresses_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):  # noqa: S104
        result = run("dashboard", "--host", host)
        assert (result.returncode, result.stdout) == (2, "")
        assert "EXPIREBRIDGE_DASHBOARD_TOKEN" in result.stderr
    monkeypatch.setenv("EXPIREBRIDGE_DASHBOARD_USERS", "ann")
    assert "write name:password" in run("dashboard").stderr


@pytest.mark.parametrize(
    "host",
    ["evil.example:8321", "evil.example", "127.0.0.1.evil.example", "", ":8321"],
)
async def test_another_name_that_points_here_is_refused(asking: Asking, host: str) -> None:
    async with asking(loopback_only=True) as client:
        assert (await client.get("/", headers={"host": host})).status_code == 421
        for own in ("localhost:8321", "127.0.0.1:8321", "[::1]:8321"):
            assert (await client.get("/", headers={"host": own})).status_code == 200


@pytest.mark.parametrize("loopback_only", [True, False])
@pytest.mark.parametrize("host", ["[::1", "[", "::1]", "localhost:x", "a@localhost", "localhost/a"])
async def test_what_is_no_name_is_refused(asking: Asking, host: str, loopback_only: bool) -> None:
    async with asking(loopback_only=loopback_only) as client:
        for page in ("/", "/tasks", "/live"):
            shown = await client.get(page, headers={"host": host})
            assert shown.status_code == 400, shown.text
            assert shown.headers["content-security-policy"]


# Actions


async def post(client: httpx.AsyncClient, id: str, **headers: str) -> int:
    form = {"id": id, "action": "cancel"}
    return (await client.post("/task", data=form, headers=headers)).status_code


async def test_an_action_comes_from_its_own_page_only(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.make_task("mail.send", [1], 60, id="a")
    foreign = [
        "", "null", "http://evil.example", "http://127.0.0.1:8322", f"{OWN}.evil.example",
        "http://[", OWN.replace("http", "file"), f"{OWN}/", OWN.replace("//", "//a@"), "http://",
    ]  # fmt: skip
    async with asking(actions=True) as client:
        assert [await post(client, "a", origin=origin) for origin in foreign] == [403] * 10
        assert await post(client, "a") == 403
        bulk = {"state": "pending", "action": "cancel"}
        assert (await client.post("/bulk", data=bulk)).status_code == 403
        task = await async_bridge.get("a")
        assert task is not None
        assert task.state is State.PENDING
        assert await post(client, "a", origin=OWN) == 303
        # A link, or an image, on another page changes nothing.
        assert (await client.get("/task?id=a&action=run_now")).status_code == 200
    task = await async_bridge.get("a")
    assert task is not None
    assert task.state is State.CANCELLED


async def test_read_only_is_the_default(asking: Asking, async_bridge: AsyncBridge) -> None:
    await async_bridge.make_task("mail.send", [1], 60, id="a")
    async with asking() as client:
        assert await post(client, "a", origin=OWN) == 403
        bulk = {"state": "pending", "action": "cancel"}
        refused = await client.post("/bulk", data=bulk, headers={"origin": OWN})
        assert refused.status_code == 403
        for page in ("/task?id=a", "/tasks", "/bulk?action=cancel"):
            shown = (await client.get(page)).text
            assert 'method="post"' not in shown
            assert "read only" in shown
    assert (await async_bridge.count()).pending == 1


async def test_each_action_is_noted_and_logged(
    asking: Asking, async_bridge: AsyncBridge, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await async_bridge.make_task("mail.send", ["pass-word"], 60, id="a")
    async with asking(actions=True, credentials=web.Credentials(users={"ann": "x"})) as pages:
        pages.auth = httpx.BasicAuth("ann", "x")
        for action in ("pause", "resume", "run_now", "cancel", "no such action"):
            form = {"id": "a", "action": action}
            await pages.post("/task", data=form, headers={"origin": OWN})
        log = (await pages.get("/actions")).text
    noted = re.findall(
        r">ann</td><td [^>]*>(\w+)</td><td [^>]*><a href=\"/task\?id=a\">(\w)</a></td>"
        r"<td [^>]*>([\w ]+)</td>",
        log,
    )
    assert noted == [
        ("cancel", "a", "1 cancelled"),
        ("run_now", "a", "1 due now"),
        ("resume", "a", "1 resumed"),
        ("pause", "a", "1 paused"),
    ]
    told = [record for record in caplog.records if getattr(record, "event", "") == "action"]
    assert [record.fields["action"] for record in told] == ["pause", "resume", "run_now", "cancel"]  # type: ignore[attr-defined]
    assert "pass-word" not in caplog.text + log
    assert client.llen("expirebridge:actions") == 4


# What a page may do


@pytest.mark.parametrize("page", PAGES)
async def test_pages_forbid_what_is_not_theirs(
    asking: Asking, async_bridge: AsyncBridge, page: str
) -> None:
    await async_bridge.make_task("mail.send", [ODD], 60, id="a", tags=["x"])
    async with asking(actions=True) as client:
        shown = await client.get(page)
    assert shown.status_code == 200
    policy = dict(one.split(" ", 1) for one in shown.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert "unsafe" not in shown.headers["content-security-policy"]
    assert shown.headers["cache-control"] == "no-store"
    # The policy holds only where nothing needs an exception.
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", shown.text)
    assert not re.search(r"(src|href)=\"(https?:)?//", shown.text)


async def test_whatever_is_in_redis_is_escaped(
    asking: Asking, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    await async_bridge.make_task("mail.send", [ODD], 60, id="a", tags=["x"])
    client.hset("expirebridge:task:a", mapping={"error": ODD, "tags": ODD, "call": f"{ODD}?[1]"})
    client.hset("expirebridge:holds", f"tag {ODD}", '{"reason": "<script>", "by": "<script>"}')
    client.zadd("expirebridge:listeners", {f"{ODD}:1:x": 4_000_000_000_000})
    client.lpush("expirebridge:actions", '[1,"<b>","<b>","<b>","<b>"]', "[]", "<b>", "\xff")
    async with asking(actions=True) as pages:
        for page in [*PAGES, "/bulk?action=cancel", "/task?id=" + ODD, "/tasks?func=" + ODD]:
            shown = await pages.get(page)
            assert shown.status_code in {200, 400}
            assert "<script>" not in shown.text
            assert "<td><b>" not in shown.text


QUERIES = [
    "cursor=-1", "cursor=99999999999999999999999", "cursor=x",
    "cursor=" + "9" * 5000, "cursor=१", "state=x", "tag=a b",
    "func=;", "after=x", "after=0001-01-01T00:00%2B14:00", "before=9999-12-31T23:59",
    "id=a", "id=a%20b", "id=a&cursor=18446744073709551615", "id=a&tag=x", "id=a&state=any",
    "wait=x",
    "state=failed&wait=retry",
    "state=any", "state=any&tag=x", "cursor=18446744073709551615",
    "cursor=18446744073709551615&tag=x", "cursor=18446744073709551616&tag=x",
    "after=2031-01-01T00:00&before=2001-01-01T00:00",
]  # fmt: skip


async def test_no_query_breaks_it(asking: Asking) -> None:
    async with asking(actions=True) as client:
        for query in QUERIES:
            for page in ("/tasks", "/bulk"):
                shown = await client.get(f"{page}?action=put_off&by=1h&{query}")
                assert shown.status_code in {200, 400}, (query, shown.text)
        assert (await client.get("/bulk?action=put_off&by=-1")).status_code == 400
        assert (await client.get("/bulk?action=put_off&by=200000000w")).status_code == 400
        large = await client.post("/task", content=b"x" * 20_000, headers={"origin": OWN})
        assert (large.status_code, "too large" in large.text) == (400, True)


async def test_arguments_are_shown_only_if_asked_for_and_may_be_hidden(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.make_task("mail.send", ["pass-word"], 60, id="a")
    async with asking() as client:
        for page in ("/", "/tasks", "/task?id=a"):
            assert "pass-word" not in (await client.get(page)).text
        assert (await client.get("/task/arguments?id=a")).text.count("pass-word") == 2
    for redact in (web.without_arguments, lambda task: replace(task, args=("***",))):
        async with asking(redact=redact) as client:
            assert "pass-word" not in (await client.get("/task/arguments?id=a")).text


async def test_sealed_arguments_are_shown_with_their_key_only(
    asking: Asking, async_bridge: AsyncBridge, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncBridge(url, keys=K1) as sealing:
        await sealing.make_task("mail.send", ["pass-word"], 60, id="a")
    async with asking() as client:
        page = (await client.get("/task/arguments?id=a")).text
        assert "(sealed with key k1)" in page
        assert "pass-word" not in page
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", K1)
    async with asking() as client:
        assert "pass-word" in (await client.get("/task/arguments?id=a")).text
        for page in ("/", "/tasks", "/task?id=a"):
            assert "pass-word" not in (await client.get(page)).text
        assert "In clear" not in (await client.get("/task?id=a")).text
        await async_bridge.make_task("mail.send", ["plain"], 60, id="b")
        assert "In clear arguments" in words((await client.get("/task?id=b")).text)


OPENING = {"/task", "/task/arguments", "/task/edit", "/task/live", "/find", "/live"}
"""What shows one task, and may open what is sealed of it; and a stream, which has no end."""
ASKED = [
    "", "?state=failed", "?state=any&id=g", "?state=failed&id=s", "?state=any&tag=x", "?name=g",
    "?id=s", "?action=retry&state=failed", "?action=retry&state=any&id=g",
]  # fmt: skip


async def test_no_list_opens_what_is_sealed(
    asking: Asking, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness()

    @handler(retry=[])
    async def fail(to: str) -> None:
        raise ValueError(f"no {to}")

    async with (
        AsyncBridge(settings.url, keys=K1) as sealing,
        listening(replace(settings, keys=K1), witness, fail=fail),
    ):
        member = {"func": "test.fail", "args": ["pass-word"], "delay": 0, "tags": ["x"]}
        await sealing.make_group("g", [member])
        await sealing.schedule("s", "test.fail", ["pass-word"], every="1d", tags=["x"])
        await sealing.run_series("s")
        await witness.until_ended(2)
    monkeypatch.setenv("EXPIREBRIDGE_KEYS", K1)
    app = web.app(settings.url, actions=True)
    routes = [route for route in app.routes if isinstance(route, Route)]
    lists = {route.path for route in routes if "GET" in (route.methods or ())} - OPENING
    shown = ""
    async with asking(actions=True) as client:
        assert "pass-word" in (await client.get("/task?id=g@g0")).text
        for path in sorted(lists):
            for query in ASKED:
                page = await client.get(path + query)
                assert "pass-word" not in page.text, path + query
                shown += page.text
    # Rows of the failed ones were there: found by state, id, tag and group, and by the series.
    assert shown.count("sealed with key k1") >= 8


@contextlib.contextmanager
def commanded(
    url: str, *options: str, auth: tuple[str, str] | None = None, env: Mapping[str, str] = {}
) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """The command in a process of its own, and a client of it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with subprocess.Popen(
        [*COMMAND, "dashboard", "--url", url, "--port", port, *options],
        stdout=subprocess.PIPE, text=True, env=os.environ | env,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address.startswith(f"http://127.0.0.1:{port}/")
            # It says so before it listens.
            transport = httpx.HTTPTransport(retries=10)
            with httpx.Client(base_url=address, transport=transport, auth=auth) as client:
                assert client.get("/").status_code == 200
                yield process, client
        finally:
            process.terminate()


def test_the_command_serves_until_it_is_told_to_stop(url: str) -> None:
    with commanded(url) as (process, client):
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421
        form = {"id": "a", "action": "cancel"}
        own = {"origin": str(client.base_url).rstrip("/")}
        assert client.post("/task", data=form, headers=own).status_code == 303
        with client.stream("GET", "/live") as live:
            assert live.headers["content-type"].startswith("text/event-stream")
            assert next(live.iter_lines()) == ": still here"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) in {0, -signal.SIGTERM}


@pytest.mark.rest
def test_the_command_answers_after_more_half_open_connections_than_it_takes(url: str) -> None:
    with commanded(url) as (_, client):
        client.close()
        where = str(client.base_url)
        with half_open(where, MOST_CONNECTIONS + 100) as others:
            for other in others[MOST_CONNECTIONS + 1 :]:
                until_closed(other)
            for other in others[:MOST_CONNECTIONS]:
                until_closed(other)
            assert httpx.get(where).status_code == 200


def test_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run("dashboard")
    assert (result.returncode, result.stdout) == (2, "")
    assert "pip install 'expirebridge[web]'" in result.stderr


async def test_it_says_when_the_server_is_away() -> None:
    app = web.app("redis://127.0.0.1:1/1")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=OWN) as client:
        overview, tasks = await client.get("/"), await client.get("/tasks")
    assert (overview.status_code, tasks.status_code) == (200, 503)
    assert "no answer from the server" in overview.text
    assert "no answer from the server" in tasks.text


async def test_the_page_s_example_mounts_it(url: str) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example.replace("redis://localhost:6379/1", url), names)  # noqa: S102 - our own page
    site = names["site"]
    transport = httpx.ASGITransport(site)
    async with (
        site.router.lifespan_context(site),
        httpx.AsyncClient(transport=transport, base_url=OWN) as client,
    ):
        assert (await client.get("/tasks")).headers["location"] == f"{OWN}/tasks/"
        shown = (await client.get("/tasks/")).text
        assert '<a href="/tasks/tasks"' in shown
        assert (await client.get("/tasks/tasks")).status_code == 200


async def test_it_says_what_cannot_be_read(asking: Asking, client: redis.Redis) -> None:
    client.set("expirebridge:pending", "no set")
    async with asking() as pages:
        shown = await pages.get("/")
    assert shown.status_code == 200
    assert "WRONGTYPE" in shown.text
    assert "No alarm" not in shown.text


# The files that come with it


def test_the_files_of_others_are_as_they_were_published() -> None:
    lines = (STATIC / "CHECKSUMS").read_text().splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    assert set(sums) == {path.name for path in STATIC.iterdir() if path.name.startswith("htmx")}
    for name, digest in sums.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    assert {name.replace(".min.js", "") for name in sums if name.endswith(".js")} == {
        name.replace(".LICENSE.txt", "") for name in sums if name.endswith(".txt")
    }


def test_every_template_is_one_that_is_escaped() -> None:
    assert {path.suffix for path in TEMPLATES.iterdir()} == {".html"}
    for path in TEMPLATES.iterdir():
        assert "|safe" not in re.sub(r"\s", "", path.read_text())


# How many may look


async def open_streams(app: ASGIApp, number: int) -> list[int]:
    """Open so many streams at the same moment; the status of each, once all have begun."""
    statuses: list[int] = []
    begun = asyncio.Event()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            if len(statuses) == number:
                begun.set()

    async def receive() -> Message:
        return await asyncio.Event().wait() and {}  # nobody goes away

    scope = {
        "type": "http", "method": "GET", "path": "/task/live", "root_path": "", "headers": [],
        "query_string": b"id=a", "asgi": {"version": "3.0", "spec_version": "2.3"},
    }  # fmt: skip
    streams = [asyncio.ensure_future(app(dict(scope), receive, send)) for _ in range(number)]
    await begun.wait()
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    return statuses


async def test_no_more_pages_than_the_limit_are_kept_right_even_at_once(url: str) -> None:
    app = web.app(url)
    async with app.router.lifespan_context(app):
        # The second time, those that were open have gone.
        for _ in range(2):
            statuses = await open_streams(app, MAX_STREAMS + 30)
            assert Counter(statuses) == {200: MAX_STREAMS, 503: 30}
