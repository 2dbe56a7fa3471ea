"""Listeners that live and claim nothing: suspended, stopping, or held up by a handler."""

import asyncio
import re
import threading
from dataclasses import replace

import pytest

from expirebridge import AsyncBridge, Bridge, Reason
from expirebridge.checks.finding import Finding, Level
from expirebridge.checks.health import check_health
from expirebridge.hooks import Started
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import fleet
from tests.kit.invoked import invoke, invoke_json
from tests.kit.logs import Log
from tests.kit.patience import PATIENCE
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

LEASE = 1.0


async def why(bridge: AsyncBridge, id: str, code: str, text: str = "") -> Reason:
    """The reason, once it has this code and text: what changed comes with the next heartbeat."""
    async with asyncio.timeout(PATIENCE):
        while True:
            reason = await bridge.why(id)
            if reason is not None and reason.code == code and text in reason.text:
                return reason
            await asyncio.sleep(0.05)


def look(store: Store, settings: Settings) -> Finding:
    """What is found of the listeners."""
    findings = store.run(check_health(store.database, settings))
    return next(one for one in findings if one.check == "listeners")


async def test_all_are_suspended(
    settings: Settings, async_bridge: AsyncBridge, store: Store, log: Log
) -> None:
    settings = replace(settings, lease=LEASE)

    async def send() -> None: ...

    witness = Witness()
    async with listening(settings, witness, send=send) as listener:
        listener.suspend()
        await log.until("suspended")
        task = await async_bridge.make_task("test.send", [], 0)
        reason = await why(async_bridge, task.id, "idle")
        assert reason.text.endswith("but no listener claims tasks: 1 suspended")
        assert reason.remedy == "expirebridge handlers --fleet"
        finding = await asyncio.to_thread(look, store, settings)
        assert finding.level is Level.WARNING
        assert finding.message == "1 listener beats, 1 suspended: none claims tasks"
        told = await asyncio.to_thread(invoke, "handlers", "--fleet", url=settings.url)
        assert f"{listener.name} (suspended)" in told
        [code] = await asyncio.to_thread(invoke_json, "handlers", "--fleet", url=settings.url)
        assert code["idle"] == {listener.name: "suspended"}
        async with listening(settings, lambda _: None, other=send):
            reason = await why(async_bridge, task.id, "idle", "that has")
            assert reason.text.endswith(
                "but no listener that has test.send claims tasks: 1 suspended"
            )
            finding = await asyncio.to_thread(look, store, settings)
            assert (finding.level, finding.message) == (
                Level.OK, "2 listeners beat, 1 suspended",
            )  # fmt: skip
        listener.resume()
        await witness.until_ended(1)
        await why(async_bridge, task.id, "succeeded")


async def test_a_handler_overran_its_timeout(
    url: str, async_bridge: AsyncBridge, store: Store
) -> None:
    settings = Settings(url=url, lease=LEASE, timeout=0.2, concurrency=1, grace=60)
    go_on, witness = threading.Event(), Witness()

    def overrun() -> None:
        go_on.wait(PATIENCE)

    async def send() -> None: ...

    try:
        async with listening(settings, witness, overrun=overrun, send=send) as listener:
            running = await async_bridge.make_task("test.overrun", [], 0)
            await witness.until(lambda: witness.seen(Started))
            reason = await async_bridge.why(running.id)
            assert reason is not None
            assert (reason.code, reason.remedy) == ("running", "")
            reason = await why(async_bridge, running.id, "overrun")
            assert re.match(
                r"runs for .*; it overran its timeout and cannot be stopped", reason.text
            )
            assert reason.remedy == f"expirebridge cancel {running.id}"
            finding = await asyncio.to_thread(look, store, settings)
            assert finding.level is Level.WARNING
            assert finding.message.endswith(
                f"overran its timeout and cannot be stopped: {running.id}"
            )
            # It waits for the handler, and claims nothing more.
            listener.stop()
            task = await async_bridge.make_task("test.send", [], 0)
            reason = await why(async_bridge, task.id, "idle")
            assert reason.text.endswith(
                f"no listener claims tasks: 1 stopping; {running.id} overran its timeout there"
            )
            go_on.set()
    finally:
        go_on.set()


async def test_a_handler_blocks_the_event_loop(url: str, bridge: Bridge, store: Store) -> None:
    settings = Settings(url=url, lease=LEASE)
    go_on = threading.Event()

    async def block() -> None:
        go_on.wait(PATIENCE)

    def look_from_outside() -> None:
        try:
            bridge.make_task("test.block", [], 0)
            while (
                not (found := store.run(fleet.read_fleet(LEASE))).listeners
                or found.listeners[0].idle is None
            ):
                go_on.wait(0.05)
            task = bridge.make_task("test.block", [], 0)
            reason = bridge.why(task.id)
            assert reason is not None
            assert reason.text.endswith("no listener claims tasks: 1 blocked")
            assert look(store, settings).level is Level.WARNING
        finally:
            go_on.set()

    witness = Witness()
    async with listening(settings, witness, block=block):
        await asyncio.to_thread(look_from_outside)
        await witness.until_ended(2)
