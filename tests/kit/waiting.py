"""Tasks that wait for a slot, and tasks that have one: written by hand, by a plain client."""

import json

import redis

from tests.kit.steps import PREFIX, server_ms


def declare(client: redis.Redis, limits: dict[str, dict[str, int]]) -> None:
    """Declare limits, each with its numbers."""
    client.hset(f"{PREFIX}:limits", "#", "1")
    for name, numbers in limits.items():
        client.hset(f"{PREFIX}:limits", f"l {name}", json.dumps(numbers))
    client.hset(f"{PREFIX}:meta", "features", "limits")


def park(client: redis.Redis, id: str, lane: str, *, due_since: float = 60) -> int:
    """Let a task that is there wait in a lane, due since so many seconds; returns when, in ms."""
    due = server_ms(client) - round(due_since * 1000)
    record = f"{PREFIX}:task:{id}"
    call = client.hget(record, "call")
    assert isinstance(call, bytes)
    client.delete(id.encode() + b":?" + call)
    client.zadd(f"{PREFIX}:waiting", {id: due})
    client.hset(record, mapping={"state": "waiting", "due": due, "queue": lane})
    client.zrem(f"{PREFIX}:pending", id)
    client.zadd(f"{PREFIX}:queue:{lane}", {id: due})
    _weigh(client, lane)
    return due


def hold_slots(client: redis.Redis, lane: str, *ids: str) -> None:
    """Have tasks hold slots of a lane."""
    client.sadd(f"{PREFIX}:lane:{lane}", *ids)
    for id in ids:
        if client.exists(f"{PREFIX}:task:{id}"):
            client.hset(f"{PREFIX}:task:{id}", "slots", lane)
    _weigh(client, lane)


def _weigh(client: redis.Redis, lane: str) -> None:
    slots, queue = client.scard(f"{PREFIX}:lane:{lane}"), client.zcard(f"{PREFIX}:queue:{lane}")
    key = "held" if lane.startswith("hold ") else "lanes"
    client.zadd(f"{PREFIX}:{key}", {lane: slots + queue})
