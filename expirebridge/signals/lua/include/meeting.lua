-- include deciding
-- include format
-- include hooks
-- include names
-- include records
-- when signals
-- on on_meet 60 keep_decided

-- What was decided in the other database is decided here: of one task no second function runs. But not what was decided
-- before the one here was made.

-- When it was decided there, in ms, or nil.
local function decided_at(fields)
  local signalled = value_of(fields, 'signalled')
  if signalled then return tonumber(string.match(signalled, '^%d+')) end
  return value_of(fields, 'passed') and tonumber(value_of(fields, 'started'))
end

-- The deadline of the one here is taken to have passed, or that of its successor.
local function pass(id, record, successor)
  if successor then
    put_value(successor.fields, 'passed', take_value(successor.fields, 'on_signal'))
    redis.call('HSET', record_key(id), 'next', cmsgpack.pack(successor))
  else
    redis.call('HSET', record_key(id), 'passed', record.on_signal)
    redis.call('HDEL', record_key(id), 'on_signal')
  end
end

-- True if both were made by the same call, whatever a signal has made of them.
local function is_same_call(here, lost, item)
  return (lost or here.call) == (value_of(item.fields, 'lost') or item.call) and here.args == item.args
end

local function keep_decided(id, record, item, asked, stays)
  if FINISHED[record.state] then return false end
  local known, successor = redis.call('HMGET', record_key(id), 'on_signal', 'lost'), successor_of(record)
  local on_signal, lost = known[1], known[2]
  record.on_signal = on_signal
  if successor then on_signal, lost = value_of(successor.fields, 'on_signal'), value_of(successor.fields, 'lost') end
  if not stays and not (asked == 'extend' and is_same_call(successor or record, lost, item)) then return false end
  local signalled, at = value_of(item.fields, 'signalled'), decided_at(item.fields)
  if func_in(on_signal) and at and at >= (tonumber(record.made) or 0) * 1000 then
    if signalled then
      decide(id, record, value_of(item.fields, 'signal') or 'null', signalled)
    else
      pass(id, record, successor)
    end
  end
  return stays or signalled or lost
end
