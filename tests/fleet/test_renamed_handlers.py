"""Tasks that were made under a former name of their handler, by producers and by other clients."""

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, current_task, handler
from expirebridge.hooks import Started
from expirebridge.settings import Settings
from expirebridge.task.task import State
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")


@handler(aliases=["letters.post", "test.send_old"], retry=[])
async def send(to: int) -> str:
    return f"{current_task().func} to {to}"


async def test_tasks_with_a_former_name_run_and_keep_it(settings: Settings) -> None:
    witness = Witness()
    async with listening(settings, witness, send=send), AsyncBridge(settings.url) as bridge:
        made = [await bridge.make_task(func, [1], 0) for func in ("letters.post", "test.send")]
        await witness.until_ended(2)
        found = [await bridge.get(task.id) for task in made]
    assert [task and task.state for task in found] == [State.SUCCEEDED] * 2
    assert [task and task.func for task in found] == ["letters.post", "test.send"]
    assert [task and task.result for task in found] == ["letters.post to 1", "test.send to 1"]
    assert {event.task.func for event in witness.seen(Started)} == {"letters.post", "test.send"}


async def test_a_foreign_key_with_a_former_name_runs(
    settings: Settings, client: redis.Redis, bridge: Bridge
) -> None:
    witness = Witness()
    async with listening(settings, witness, send=send):
        await witness.until_hearing()
        client.set("old-1:?test.send_old?[2]", "", px=20)
        [ended] = await witness.until_ended()
    assert (ended.task.id, ended.task.func) == ("old-1", "test.send_old")
    found = bridge.get("old-1")
    assert found is not None
    assert found.result == "test.send_old to 2"


async def test_a_former_name_has_the_policy_of_its_handler(settings: Settings) -> None:
    witness = Witness()

    @handler(aliases=["letters.post"], retry=[])
    async def fail() -> None:
        raise ValueError

    async with listening(settings, witness, fail=fail), AsyncBridge(settings.url) as bridge:
        task = await bridge.make_task("letters.post", [], 0)
        await witness.until_ended()
        found = await bridge.get(task.id)
    assert found is not None
    assert (found.state, found.attempt) == (State.FAILED, 1)
