"""The steps of a task's life, one call each, and time that passes at will."""

from typing import Any

import redis

from expirebridge import AsyncBridge, Change, State, Task
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, producing
from expirebridge.task.calls.call import When
from expirebridge.task.calls.claiming import Settled, Settlement

PREFIX = "expirebridge"


def new(
    id: str, ms: int = 0, *, call: bytes = b"mail.send?[1]", **options: Any
) -> producing.NewTask:
    when = When(ms, relative=options.pop("relative", True))
    given: dict[str, Any] = {"has_random_id": False, "if_exists": "reject", "fields": {}} | options
    return producing.NewTask(id=id, call=call, when=when, **given)


def claim(
    store: Store, token: str = "t", *, places: int = 100, idle: bool = True
) -> claiming.Claim:
    return store.run(claiming.claim(token, Settings(), places=places, idle=idle))


def settle(store: Store, *settlements: Settlement) -> list[Settled]:
    return store.run(claiming.settle(settlements, Settings()))


def reschedule(store: Store, id: str, ms: int) -> Change:
    return store.run(producing.reschedule(id, When(ms, relative=True)))


def state_of(store: Store, id: str) -> State | None:
    task = store.run(looking.get(id))
    return task.state if task else None


def server_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def age(client: redis.Redis, state: str, id: str, seconds: float) -> None:
    """Make a task look as if its look-at time had come `seconds` ago."""
    client.zadd(f"{PREFIX}:{state}", {id: server_ms(client) - seconds * 1000})


def beating(store: Store) -> None:
    """Let some listener beat: only then is a silent one taken for dead."""
    store.run(claiming.heartbeat("another", 10, [], code="c0de"))


def beat_without_code(store: Store, listener: str) -> None:
    """Let a listener beat of which it is not known what it runs: another client overwrote that."""
    store.client.zadd(f"{PREFIX}:listeners", {listener: server_ms(store.client)})


async def found(bridge: AsyncBridge, task: Task) -> Task:
    """A task as the server holds it now; fails if it is gone."""
    read = await bridge.get(task.id)
    assert read is not None
    return read
