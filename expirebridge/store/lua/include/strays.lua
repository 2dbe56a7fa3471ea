-- include names
-- include records
-- include places

-- An id is in the set of `state`, but its record is gone, or another client overwrote it: what is left
-- is kept as a failed task.
local function set_aside(id, state, keep)
  local kind = redis.call('TYPE', record_key(id)).ok
  if kind == 'none' or not is_id(id) then
    redis.call('ZREM', state_set(state), id)
    return
  end
  if kind ~= 'hash' then
    redis.call('RENAME', record_key(id), broken_key(id))
  end
  redis.call('HSET', record_key(id), 'call', '?')
  finish(id, { state = state }, 'failed', keep, 'error', 'the record held a ' .. kind .. ' without a call')
end

-- Whether an id is in the set of `state` although its record names another. It is removed; if it is
-- then in no set, it is kept as failed.
local function strayed(id, record, state, keep)
  if record.state == state then return false end
  redis.call('ZREM', state_set(state), id)
  if not redis.call('ZSCORE', state_set(record.state), id) then
    finish(id, { state = state }, 'failed', keep, 'error', 'its record named the state ' .. record.state)
  end
  return true
end
