"""All that a database holds, read at one moment, and what must always be true of it."""

import math
from dataclasses import dataclass
from typing import Any

import redis

from expirebridge import State
from tests.kit.steps import PREFIX

# Each key with its kind, the ms left to a string, and the content of anything else.
_READ = """
local all = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', name).ok
  local content
  if kind == 'string' then content = redis.call('PTTL', name)
  elseif kind == 'hash' then content = redis.call('HGETALL', name)
  elseif kind == 'zset' then content = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
  else content = redis.call('SMEMBERS', name) end
  all[#all + 1] = { name, kind, content }
end
return { redis.call('TIME'), all }
"""


@dataclass
class Snapshot:
    """All that a database holds."""

    now: float
    timers: dict[str, float]
    """By name: the seconds left, infinite for a timer without an end."""
    records: dict[str, dict[str, str]]
    sets: dict[State, dict[str, float]]
    """For each state: id and look-at time in seconds."""
    tags: dict[str, set[str]]


def read_keys(client: redis.Redis) -> tuple[float, dict[str, tuple[str, Any]]]:
    """The server's time, and each key by name with its kind and content, all at one moment."""
    reply: Any = client.eval(_READ, 0)
    (seconds, micros), rows = reply
    keys = {name.decode(): (kind.decode(), content) for name, kind, content in rows}
    return int(seconds) + int(micros) / 1e6, keys


def fields_of(content: list[bytes]) -> dict[str, str]:
    """The fields of a hash."""
    pairs = [item.decode(errors="replace") for item in content]
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def scores_of(content: list[bytes]) -> dict[str, float]:
    """The members of a sorted set with their scores."""
    pairs = zip(content[::2], content[1::2], strict=True)
    return {member.decode(): float(score) for member, score in pairs}


def read(client: redis.Redis) -> Snapshot:
    """Read all that the client's database holds, at one moment."""
    now, keys = read_keys(client)
    all = Snapshot(now, {}, {}, {state: {} for state in State}, {})
    for name, (kind, content) in keys.items():
        part = name.removeprefix(f"{PREFIX}:")
        if kind == "string":
            all.timers[name] = content / 1000 if content >= 0 else math.inf
        elif part.startswith("task:"):
            all.records[part[5:]] = fields_of(content)
        elif part.startswith("tag:"):
            all.tags[part[4:]] = {id.decode() for id in content}
        elif part in set(State):
            all.sets[State(part)] = {id: at / 1000 for id, at in scores_of(content).items()}
    return all


def key_name(id: str, record: dict[str, str]) -> str:
    """The name of a record's trigger key."""
    return record.get("key", f"{id}:?{record['call']}")


def check_history(record: dict[str, str], id: str) -> None:
    """What is noted of a task is short, can be read, and leads from each due time to the next."""
    lines = record.get("history", "").splitlines()
    assert len(lines) <= 20, id
    for line in lines:
        at, what, first, second, times, *_ = line.split(" ", 5)
        assert at.isdigit(), (id, line)
        assert what.isidentifier(), (id, line)
        assert times.isdigit(), (id, line)
        assert all(moment == "-" or moment.isdigit() for moment in (first, second)), (id, line)


def check_invariant(found: Snapshot, edited: set[str]) -> None:
    """Each id is in the one set that its record names; what waits has a timer, or is due."""
    for id, record in found.records.items():
        check_history(record, id)
        places = [state for state in State if id in found.sets[state]]
        assert places == [record.get("state", "pending")], id
    strays = {id for ids in found.sets.values() for id in ids} - set(found.records)
    assert not strays
    keys = {id: key_name(id, record) for id, record in found.records.items()}
    assert len(set(keys.values())) == len(keys), "two tasks share a key"
    for id, look_at in found.sets[State.PENDING].items():
        name = keys[id]
        assert name in found.timers or look_at <= found.now or name in edited, id
    for id in found.sets[State.PAUSED]:
        name = keys[id]
        assert found.timers.get(name) == math.inf or name in edited, id
