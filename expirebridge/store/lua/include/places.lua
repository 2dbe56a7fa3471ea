-- include names
-- include clock
-- include tick_ends

-- When the first task is due that this script puts into `pending`.
local soonest = math.huge

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
  if record.state ~= state then
    redis.call('ZREM', state_set(record.state), id)
    record.state = state
  end
end

-- Removes a task's record, its tags and its place. (Tag sets may have been overwritten.)
local function forget(id, state)
  local tags = redis.pcall('HGET', record_key(id), 'tags')
  if type(tags) == 'string' then
    for tag in string.gmatch(tags, '%S+') do redis.pcall('SREM', tag_set(tag), id) end
  end
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
