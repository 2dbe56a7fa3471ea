"""A real database beside its model: lets time pass in it, and compares the two."""

import math
from typing import Any

import redis

from expirebridge import State
from tests.kit.snapshot import Snapshot, check_invariant, key_name, read
from tests.kit.steps import PREFIX
from tests.machine.model import LIMITED, Model, Modelled

# Moves all that the database holds into the past: for every rule of expirebridge, time has passed.
_AGE = r"""
local ms = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local moments = { 'due', 'started', 'ended', 'rearm', 'unknown', 'first', 'parked' }
-- The scores of these are numbers of tasks.
local numbers = { lanes = true, held = true }
for _, name in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', name).ok
  if kind == 'string' then
    local left = redis.call('PTTL', name)
    if left >= 0 and left <= ms then redis.call('DEL', name) end
    if left > ms then redis.call('PEXPIREAT', name, now + left - ms) end
  elseif kind == 'hash' then
    for _, field in ipairs(moments) do
      local moment = redis.call('HGET', name, field)
      if moment then redis.call('HSET', name, field, string.format('%.0f', moment - ms)) end
    end
    -- Lines of these begin with an arrival, or with - for none; the first of `charged` is when it
    -- started.
    for _, field in ipairs({ 'turn', 'charged' }) do
      local lines = redis.call('HGET', name, field)
      local changed = lines and string.gsub('\n' .. lines, '\n(%d+)( ?)', function(moment, space)
        return string.format('\n%.0f', moment - (space == '' and 1 or 1000) * ms) .. space
      end)
      if changed then redis.call('HSET', name, field, string.sub(changed, 2)) end
    end
    local replacement = string.find(name, ':task:') and redis.call('HGET', name, 'next')
    if replacement then
      local task = cmsgpack.unpack(replacement)
      task.due = task.due - ms
      for i = 1, #task.fields, 2 do
        if task.fields[i] == 'first' then task.fields[i + 1] = task.fields[i + 1] - ms end
      end
      redis.call('HSET', name, 'next', cmsgpack.pack(task))
    end
  elseif kind == 'zset' and not numbers[string.match(name, '[^:]*$')] then
    local units = string.find(name, ':rates$') and 1000 * ms or ms
    for _, id in ipairs(redis.call('ZRANGE', name, 0, -1)) do
      redis.call('ZINCRBY', name, -units, id)
    end
  end
end
"""


def age(client: redis.Redis, seconds: float) -> None:
    """Let time pass in a database."""
    client.eval(_AGE, 0, round(seconds * 1000))


class World:
    """A database, and the time that has passed in it."""

    def __init__(self, client: redis.Redis, model: Model) -> None:
        self._client = client
        self._model = model
        self._began = read(self._client).now
        model.queue = lambda: self.order(f"queue:{LIMITED}")

    def advance(self, seconds: float) -> None:
        """Let time pass, for the database and for its model."""
        age(self._client, seconds)
        self._model.advance(seconds)

    def elapsed(self) -> float:
        """How much real time has passed since the beginning, of which the model knows nothing."""
        return read(self._client).now - self._began

    def order(self, key: str) -> list[str]:
        """The ids of a state's set, or of a queue, as the server orders them."""
        ids: Any = self._client.zrange(f"{PREFIX}:{key}", 0, -1)
        return [id.decode() for id in ids]

    def check(self, edited: set[str]) -> None:
        """Fail unless the invariant holds, and the database is what the model says it is.

        `edited` are the names of keys that other clients deleted, or gave another end.
        """
        found = read(self._client)
        check_invariant(found, edited)
        model = self._model
        assert set(found.records) == set(model.tasks)
        for id, task in model.tasks.items():
            self._check_task(id, task, found)
        assert {id for id, record in found.records.items() if "slots" in record} == model.in_lane()
        assert {id for id, record in found.records.items() if "queue" in record} == {*model.line()}
        assert set(found.timers) == set(model.timers)
        for name, end in model.timers.items():
            self._check_moment(found.timers[name] + found.now, end, found, name)
        tagged = {tag for task in model.tasks.values() for tag in task.tags}
        expected = {
            tag: {id for id, task in model.tasks.items() if tag in task.tags} for tag in tagged
        }
        assert found.tags == expected

    def _check_task(self, id: str, task: Modelled, found: Snapshot) -> None:
        record = found.records[id]
        assert record.get("state", State.PENDING) == task.state, id
        assert record["call"] == task.call, id
        assert key_name(id, record) == task.key, id
        assert int(record.get("attempt", 0)) == task.run.attempt, id
        assert int(record.get("lapses", 0)) == task.run.lapses, id
        assert int(record.get("snoozes", 0)) == task.run.snoozes, id
        assert record.get("token") == task.run.token, id
        assert record.get("ttl") == (None if task.ttl is None else str(task.ttl * 1000)), id
        assert ("first" in record) == (task.run.first is not None), id
        if task.run.first is not None:
            self._check_moment(int(record["first"]) / 1000, task.run.first, found, id)
        self._check_moment(found.sets[task.state][id], task.look_at, found, id)
        if task.state is State.PAUSED:
            spent = found.now - self._began
            assert abs(int(record.get("left", 0)) / 1000 - task.left) <= spent + 0.01, id

    def _check_moment(self, real: float, modelled: float, found: Snapshot, what: str) -> None:
        """Whether two moments are the same, but for the real time that has passed meanwhile."""
        if math.inf in {real, modelled}:
            assert real == modelled, what
            return
        late = real - (self._began + modelled - self._model.now)
        assert -0.01 <= late <= found.now - self._began + 0.01, (what, late)
