-- include names
-- include clock
-- include records
-- include format
-- include ring
-- include hooks
-- gives move, wait_until, forget, finish, fail_broken, repair_place, rank_behind

-- Moves an id from the set of its state to that of another, and sets `fields`, names and values, which
-- are for states other than `pending`. Lua does not roll back, so the destination is written first and
-- the source last: no id is ever without a set.
local function move(id, record, state, look_at, fields)
  redis.call('ZADD', state_set(state), look_at, id)
  if state == 'pending' then
    redis.call('HDEL', record_key(id), 'state', 'left')
    soonest = math.min(soonest, look_at)
  else
    redis.call('HSET', record_key(id), 'state', state, unpack(fields or {}))
  end
  local before = record.state
  for i = 1, #on_move do on_move[i](id, record, before, state, look_at, fields) end
  if before ~= state then
    redis.call('ZREM', state_set(before), id)
    record.state = state
  end
end

-- Makes a task pending until `due`, and sets its timer.
local function wait_until(id, record, due)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
end

-- Removes a task's record, its tags and its place. (Tag sets may have been overwritten.)
local function forget(id, state)
  local tags = redis.pcall('HGET', record_key(id), 'tags')
  if type(tags) == 'string' then
    for tag in string.gmatch(tags, '%S+') do redis.pcall('SREM', tag_set(tag), id) end
  end
  for i = 1, #on_forget do on_forget[i](id) end
  redis.call('DEL', record_key(id))
  redis.call('ZREM', state_set(state), id)
end

-- Ends a task for good. `keep` is how many ms it can be looked up.
local function finish(id, record, state, keep, field, text)
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
    for i = 1, #on_move do on_move[i](id, { state = state }, state, 'cancelled', now) end
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
