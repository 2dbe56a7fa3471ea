"""Handlers' lines in a program with its own logging: captured as any other."""

import logging
import warnings
from typing import Any

import pytest

from expirebridge import AsyncBridge
from expirebridge.hooks import End
from expirebridge.observe.logs import TaskFields
from expirebridge.settings import Settings
from tests.kit.witness import Witness, listening

shop = logging.getLogger("shop")


async def test_a_test_captures_what_handlers_log(
    url: str, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    async def send() -> None:
        shop.info("in the event loop")

    def charge() -> None:
        shop.info("in a thread")

    witness = Witness()
    caplog.set_level(logging.INFO, "shop")
    caplog.handler.addFilter(fields := TaskFields())
    try:
        async with listening(Settings(url=url), witness, send=send, charge=charge):
            await async_bridge.make_task("test.send", [], 0, id="a")
            await async_bridge.make_task("test.charge", [], 0, id="b")
            await witness.until_ended(2, end=End.SUCCEEDED)
    finally:
        caplog.handler.removeFilter(fields)
    found = {
        record.getMessage(): getattr(record, "task", None)
        for record in caplog.records
        if record.name == "shop"
    }
    assert found == {"in the event loop": "a", "in a thread": "b"}


def configuration() -> list[Any]:
    """What the logging of this process looks like from outside."""
    loggers = [logging.getLogger(name) for name in (None, "expirebridge", "asyncio", "redis")]
    return [
        warnings.showwarning,
        logging.getLogRecordFactory(),
        *((one.level, list(one.handlers), list(one.filters), one.propagate) for one in loggers),
    ]


async def test_a_listener_in_a_program_configures_no_logging(
    url: str, async_bridge: AsyncBridge
) -> None:
    async def send() -> None:
        seen.append(configuration())

    seen: list[Any] = []
    witness = Witness()
    before = configuration()
    async with listening(Settings(url=url), witness, send=send):
        await async_bridge.make_task("test.send", [], 0)
        await witness.until_ended(1, end=End.SUCCEEDED)
    assert seen == [before]
    assert configuration() == before
