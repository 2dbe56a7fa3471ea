"""The one path of a task, from make_task to settle, against real servers."""

from expirebridge import AsyncBridge, State
from expirebridge.settings import Settings
from tests.witness import Witness, listening


async def test_an_async_handler_runs_when_its_task_is_due(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def send(user: int, *, subject: str) -> str:
        return f"{user} {subject}"

    async with listening(settings, witness, send=send):
        task = await async_bridge.make_task("test.send", [42], 0.05, kwargs={"subject": "hi"})
        await witness.until_ended()
    found = await async_bridge.get(task.id)
    assert found is not None
    assert found.state is State.SUCCEEDED
    assert found.result == "42 hi"
    assert found.due == task.due
    assert found.started is not None
    assert found.started >= task.due
    assert found.attempt == 1
