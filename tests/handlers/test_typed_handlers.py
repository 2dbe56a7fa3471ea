"""Typed handlers, from a producer through a server to a listener."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis

from expirebridge import AsyncBridge, Call, State
from expirebridge.handlers import Registry
from expirebridge.hooks import End
from expirebridge.settings import Settings
from tests.kit.modules import forgotten, put
from tests.kit.witness import Witness, listening_with

SHOP = """
    from dataclasses import dataclass
    from datetime import datetime
    from uuid import UUID

    from expirebridge import current_task, handler

    @dataclass
    class Line:
        item: UUID
        count: int

    @handler(typed=True)
    def rate(order: UUID, lines: list[Line], *, at: datetime | None = None) -> str:
        assert all(isinstance(line, Line) for line in lines)
        return f"{order!r} {at and at.isoformat()} {current_task().args[0]}"

    @handler(typed=True)
    async def remind(order: UUID) -> str:
        return repr(order)
"""
ORDER, ITEM = UUID(int=17), UUID(int=5)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / f"tasks_{uuid4().hex}"
    put(folder, "shop.py", SHOP)
    with forgotten(tmp_path):
        Registry.load(folder)
        yield folder


async def test_values_reach_the_handlers_and_records_hold_json(
    settings: Settings, folder: Path
) -> None:
    shop: Any = sys.modules[f"{folder.name}.shop"]
    at = datetime(2030, 1, 2, tzinfo=UTC)
    witness = Witness()
    async with (
        listening_with(Registry.load(folder), settings, witness),
        AsyncBridge(settings.url, tasks=str(folder)) as bridge,
    ):
        call = Call(shop.rate, ORDER, [shop.Line(ITEM, 3)], at=at)
        plain = await bridge.make_task(call, delay=0, id="plain")
        await bridge.make_task(Call(shop.remind, ORDER), delay=0, id="async")
        assert plain.args == [str(ORDER), [{"item": str(ITEM), "count": 3}]]
        assert plain.kwargs == {"at": "2030-01-02T00:00:00Z"}
        await witness.until_ended(2)
        ran, reminded = await bridge.get("plain"), await bridge.get("async")
    assert ran is not None
    assert reminded is not None
    assert (ran.state, ran.error) == (State.SUCCEEDED, None)
    assert ran.result == f"{ORDER!r} {at.isoformat()} {ORDER}"
    assert ran.args == plain.args
    assert reminded.result == repr(ORDER)


async def test_what_other_clients_write_is_read_or_fails_with_its_reason(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, folder: Path
) -> None:
    witness = Witness()
    async with listening_with(Registry.load(folder), settings, witness):
        await witness.until_hearing()
        for id, args in {
            "right": f'["{ORDER}"]',
            "nonsense": '["tomorrow"]',
            "other": "[{}]",
            "many": f'["{ORDER}",1]',
        }.items():
            client.set(f"{id}:?shop.remind?{args}", "", px=1)
        await witness.until_ended(4)
        right = await async_bridge.get("right")
        assert right is not None
        assert right.result == repr(ORDER)
        for id, reason in {
            "nonsense": "order is of type str, which does not fit uuid.UUID (",
            "other": "order is of type dict, which does not fit uuid.UUID (",
            "many": "remind(order: uuid.UUID) -> str: too many positional arguments",
        }.items():
            task = await async_bridge.get(id)
            assert task is not None
            assert (task.state, task.attempt) == (State.FAILED, 1)
            assert task.error is not None
            assert task.error.startswith(f"its arguments do not fit: {reason}"), task.error
        await async_bridge.make_task("shop.remind", [str(ORDER)], 0, id="after")
        await witness.until_ended(5)
        assert [event.task.id for event in witness.ended(End.SUCCEEDED)] == ["right", "after"]
