-- include names
-- include clock
-- include records
-- include lanes
-- include groups
-- include format
-- include ring
-- gives note_end_of_tick, move, forget, finish, fail_broken, repair_place, rank_behind

-- Notes in its series how a tick ended, since the tick's own record is soon forgotten: when one last
-- succeeded, and what became of the latest that began.
local function note_end_of_tick(id, state)
  local series = string.match(id, '^(.+)@%d+$')
  local known = series and redis.pcall('HMGET', series_key(series), 'call', 'last')
  if not known or known.err or not known[1] then return end
  local fields = known[2] == id and { 'outcome', state, 'ended', now } or {}
  if state == 'succeeded' then fields[#fields + 1], fields[#fields + 2] = 'succeeded', now end
  if fields[1] then redis.call('HSET', series_key(series), unpack(fields)) end
end

-- Moves an id from the set of its state to that of another, and sets `fields`, names and values, which
-- are for states other than `pending`. Lua does not roll back, so the destination is written first and
-- the source last: no id is ever without a set.
--
-- A task of a ledger is `dirty` then: its row is to be written. That it runs, or is alive, is not.
local function move(id, record, state, look_at, fields)
  if record.ledger and state ~= 'running' and not record.is_alive
    and not (state == 'paused' and record.state == state) then
    redis.call('ZADD', state_set('dirty'), string.format('%.0f', now_us), id)
  end
  redis.call('ZADD', state_set(state), look_at, id)
  if state == 'pending' then
    redis.call('HDEL', record_key(id), 'state', 'left')
    soonest = math.min(soonest, look_at)
  else
    redis.call('HSET', record_key(id), 'state', state, unpack(fields or {}))
  end
  local before = record.state
  if before ~= state then
    redis.call('ZREM', state_set(before), id)
    record.state = state
  end
  if groups and (FINISHED[before] or FINISHED[state]) then groups.note(id, before, state, move) end
  if not uses.limits or state == 'running' then return end
  if state == 'pending' and look_at <= now and before ~= 'waiting' then
    keep_slots(id)
  else
    leave_lanes(id, state == 'failed' and 'blocking' or not FINISHED[state] and 'ordered')
  end
end

-- Removes a task's record, its tags and its place. (Tag sets may have been overwritten.)
local function forget(id, state)
  local tags = redis.pcall('HGET', record_key(id), 'tags')
  if type(tags) == 'string' then
    for tag in string.gmatch(tags, '%S+') do redis.pcall('SREM', tag_set(tag), id) end
  end
  if uses.limits then leave_lanes(id) end
  redis.call('DEL', record_key(id))
  redis.call('ZREM', state_set(state), id)
end

-- Ends a task for good. `keep` is how many ms it can be looked up.
local function finish(id, record, state, keep, field, text)
  if string.find(id, '@', 1, true) then note_end_of_tick(id, state) end
  local fields = { 'ended', now }
  if text and text ~= '' then
    fields[3], fields[4] = field, text
  end
  move(id, record, state, now + keep, fields)
end

-- Keeps an id in the set of `state` as a failed task if another client overwrote its record; if the record is gone,
-- removes it.
local function fail_broken(id, state, keep)
  local kind = redis.call('TYPE', record_key(id)).ok
  if kind == 'none' or not is_id(id) then
    redis.call('ZREM', state_set(state), id)
    if groups then groups.note(id, state, 'cancelled', move) end
    return
  end
  if kind ~= 'hash' then
    redis.call('RENAME', record_key(id), broken_key(id))
  end
  redis.call('HSET', record_key(id), 'call', '?')
  finish(id, { state = state }, 'failed', keep, 'error', 'the record held a ' .. kind .. ' without a call')
end

-- Removes an id from the set of `state` if its record names another one, and returns true then. If that leaves it in
-- no set, it is kept as failed.
local function repair_place(id, record, state, keep)
  if record.state == state then return false end
  redis.call('ZREM', state_set(state), id)
  if not redis.call('ZSCORE', state_set(record.state), id) then
    finish(id, { state = state }, 'failed', keep, 'error', 'its record named the state ' .. record.state)
  end
  return true
end

-- The rank in a set of the first task behind a score and an id, whether that task is still there or not.
local function rank_behind(set, score, id)
  -- True if the server sorts one id behind another with the same score. It compares bytes, which `>` does not in every
  -- locale.
  local function is_behind(one, other)
    for place = 1, math.min(#one, #other) do
      local byte, its_byte = string.byte(one, place), string.byte(other, place)
      if byte ~= its_byte then return byte > its_byte end
    end
    return #one > #other
  end
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(redis.call('ZRANGE', set, middle, middle)[1], id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
