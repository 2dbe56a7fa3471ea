"""Urgent tasks and a listener that runs one task at a time."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Then
from expirebridge import make_task as make
from expirebridge.hooks import End
from expirebridge.marking import handler
from expirebridge.settings import Settings
from expirebridge.testing import Clock
from tests.kit.steps import PREFIX
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")


async def ran(settings: Settings, count: int, **functions: Callable[..., object]) -> list[str]:
    """Run what is due, one task at a time; return the ids in their order."""
    witness = Witness()
    async with listening(replace(settings, concurrency=1), witness, **functions):
        ended = await witness.until_ended(count, End.SUCCEEDED)
    return [one.task.id for one in ended]


async def test_they_run_before_a_backlog(settings: Settings) -> None:
    async def send(n: int) -> None: ...

    async with AsyncBridge(settings.url) as bridge:
        for n in range(5):
            await bridge.make_task("test.send", [n], 0, id=f"old{n}")
        for id in ("u", "v"):
            await bridge.make_task("test.send", [9], 0, id=id, urgent=True)
    found = await ran(settings, 7, send=send)
    assert sorted(found[:2]) == ["u", "v"]
    assert sorted(found[2:]) == [f"old{n}" for n in range(5)]


async def test_a_follow_up_is_first(settings: Settings) -> None:
    async def send(n: int) -> Then | None:
        return Then("test.send", [9], id="u", urgent=True) if n == 0 else None

    async with AsyncBridge(settings.url) as bridge:
        for n in range(5):
            await bridge.make_task("test.send", [n], 0, id=f"old{n}")
    found = await ran(settings, 6, send=send)
    # The next one may be claimed while the success of this one is on its way.
    assert found.index("u") <= found.index("old0") + 2


async def test_a_listener_declares_what_its_handlers_say(
    settings: Settings, client: redis.Redis
) -> None:
    @handler(urgent=True, aliases=["test.hurried"])
    async def hurry() -> None: ...

    async def send(n: int) -> None: ...

    await ran_nothing(settings, hurry=hurry, send=send)
    declared: Any = client.hkeys(f"{PREFIX}:urgent_functions")
    assert sorted(declared) == [b"test.hurried", b"test.hurry"]
    with Bridge(settings.url) as bridge:
        for n in range(3):
            bridge.make_task("test.send", [n], 0, id=f"old{n}")
        bridge.make_task("test.hurried", [], 0, id="u")
    assert (await ran(settings, 4, hurry=hurry, send=send))[0] == "u"

    async def unmarked() -> None: ...

    await ran_nothing(settings, hurry=unmarked)
    assert client.hkeys(f"{PREFIX}:urgent_functions") == [b"test.hurried"]


async def ran_nothing(settings: Settings, **functions: Callable[..., object]) -> None:
    async with listening(settings, **functions):
        pass


def test_the_testing_kit_runs_them_first(url: str) -> None:
    found: list[str] = []

    def send(which: str) -> None:
        found.append(which)

    @handler(urgent=True)
    def hurry(which: str) -> None:
        found.append(which)

    with Clock(url, handlers={"mail.send": send, "mail.hurry": hurry}) as clock:
        make("mail.send", ["first"], 0)
        clock.travel("1s")  # what is marked is declared before the first attempt
        at = clock.now + timedelta(hours=1)
        make("mail.send", ["old"], at=at, id="a")
        make("mail.send", ["urgent"], at=at, id="b", urgent=True)
        make("mail.hurry", ["marked"], at=at, id="c")
        clock.travel("2h")
    assert found == ["first", "urgent", "marked", "old"]
