-- flags: (none: refused whole when memory is full)
-- Receives the items of a batch for this partition, once: its number is noted.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the move, 3 number of the batch, then content of each task, or series
-- returns  for each: 1 it is here now, 2 the database has another one of that id, which stays, 3 the batch
--          arrived before; or the error EXPIREBRIDGE_MOVE
--
-- An id that is here already was used by a producer that uses only one of the two databases. Its `if_exists` is
-- applied now, as if it had used both: see docs/adr/0042-moving-and-importing.md.

-- include names
-- include format
-- include clock
-- include features
-- include lane_keys
-- include series_keys
-- include ring
-- include hooks

local HERE, STAYS, BEFORE = 1, 2, 3
local GONE = { 'asked', 'unknown', 'unfit' } -- of the other database only
local nonce, number = ARGV[2], tonumber(ARGV[3])
local arrivals = own_key('arrivals')

if string.sub(moving or '', 1, 5) ~= 'from ' then
  return redis.error_reply('EXPIREBRIDGE_MOVE this move was ended, or turned round, by another one')
end
if number <= (tonumber(redis.call('HGET', arrivals, nonce) or nil) or 0) then
  local reply = {}
  for at = 4, #ARGV do reply[at - 3] = BEFORE end
  return reply
end

-- A task that has begun in an ordered lane brings its slot. The limits may not have been declared here yet.
local items, has_slots = {}, false
for at = 4, #ARGV do
  local item = cmsgpack.unpack(ARGV[at])
  items[at - 3] = item
  for i = 1, #item[4], 2 do has_slots = has_slots or item[2] ~= 'series' and item[4][i] == 'slots' end
end
if has_slots and partitions == 1 then note_feature('limits') end

-- include records
-- include state_sets
-- include history
-- include timer_edits
-- include new_tasks
-- include rearm
-- include migrated
-- include series
-- include lanes
-- include limits
-- include lane_names

local function put(id, item, state, at)
  write(id, item, at, item.fields)
  if state == 'pending' then return end
  if state == 'paused' then
    redis.call('SET', trigger_key(id, item), 0)
    at = now + CHECK_PAUSED_AFTER
  else
    redis.call('DEL', trigger_key(id, item))
  end
  move(id, { state = 'pending' }, state, at)
end

-- Another client set the key again, or a producer put its task off: the task that is here is due then.
local function put_off(id, old, at)
  if old.state == 'running' then return note_rearm(id, old, at) end
  if FINISHED[old.state] then
    note_end(id, old.state)
    redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
    for i = 1, #on_again do on_again[i](id, old) end
  end
  note(id, 'edit', nil, at)
  wait_until(id, old, at)
end

local function replace(id, old, item, state, at)
  if old.state == 'running' then
    note_next(id, old, { call = item.call, args = item.args, due = at, fields = item.fields })
  else
    redis.call('DEL', trigger_key(id, old))
    forget(id, old.state)
    put(id, item, state, at)
  end
end

local function receive_task(id, state, at, fields)
  local item = { call = value_of(fields, 'call'), args = value_of(fields, 'args'),
    key = value_of(fields, 'key'), fields = fields }
  local asked, made = value_of(fields, 'asked'), tonumber(value_of(fields, 'made')) or 0
  local is_plain = not asked and not value_of(fields, 'nonce')
  for _, name in ipairs(GONE) do take_value(fields, name) end
  -- Without its hash tag a key of another name would not be this partition's.
  if item.key and not has_hash_tag(item.key) then
    take_value(fields, 'key')
    item.key = nil
  end
  if state == 'pending' then
    take_value(fields, 'left')
    -- It was due in the other database: by its number a claim sees that it was not here.
    if at <= now and not value_of(fields, 'attempt') then put_value(fields, 'attempt', '0') end
  end
  local old = read(id, { 'made', 'args', 'left', 'next', 'due', 'started' })
  if is_elsewhere(id, old) then
    if old then forget(id, old.state) end -- it comes back
    put(id, item, state, at)
    return HERE
  end
  local over = FINISHED[old.state]
  if FINISHED[state] then return STAYS end
  for i = 1, is_plain and #on_stray or 0 do
    if on_stray[i](id, trigger_key(id, item)) then return STAYS end
  end
  local stays = not over and (asked == 'keep' or asked == 'reject' or (tonumber(old.made) or 0) > made)
  for i = 1, #on_meet do stays = on_meet[i](id, old, item, asked, stays) or stays end
  if stays then return STAYS end
  if old.call == item.call and old.args == item.args
    and (is_plain or not over and asked == 'extend') then
    put_off(id, old, at)
  else
    replace(id, old, item, state, at)
  end
  return HERE
end

local function receive_series(id, at, fields)
  if redis.call('EXISTS', series_key(id)) == 1 then return STAYS end
  redis.call('HSET', series_key(id), unpack(fields))
  local tzdata = value_of(fields, 'tzdata')
  if tzdata then redis.call('ZADD', tzdata_set(), tzdata_number(tzdata), id) end
  redis.call('ZADD', series_set(), at, id)
  return HERE
end

-- Puts a task that is here now into the lanes in which it brings a slot.
local function put_into_lanes(id, slots)
  local state = redis.call('HGET', record_key(id), 'state')
  if state == 'running' or state == 'waiting' then return end
  for lane in string.gmatch(slots, '[^\n]+') do
    change_lane('SADD', lane_key(lane), id)
    touched[lane] = true
  end
  redis.call('HSET', record_key(id), 'slots', slots)
end

-- Lets a due task of an ordered lane wait in it at once, if others do, or one has its slot: pending, it would come to its
-- place only when a claim looks at it, and those that wait may be due later.
local function put_into_queue(id, due)
  local record = read(id, { 'args', 'tick' })
  if not record or record.state ~= 'pending' or record.tick then return end
  local limits = limits_of(string.match(record.call, '^[^?]*'))
  if not limits or not (limit_of(limits[1][1]) or {}).ordered then return end
  local lane = lanes_of(limits, record)[1]
  if count_slots(lane) == 0 and count_queue(lane) == 0 then return end
  due = string.format('%.0f', due)
  move(id, record, 'waiting', due, { 'due', due })
  change_lane('ZADD', queue_key(lane), due, id)
  note_longest(lane, { due, id })
  redis.call('HSET', record_key(id), 'queue', lane, 'parked', string.format('%.0f', now))
  touched[lane] = true
end

return ring_after(function()
  local reply = {}
  for place, item in ipairs(items) do
    local id, state, when, fields = unpack(item)
    if state == 'series' then
      reply[place] = receive_series(id, when, fields)
    else
      local slots = take_value(fields, 'slots')
      reply[place] = receive_task(id, state, when, fields)
      if touched and reply[place] == HERE then
        if slots then
          put_into_lanes(id, slots)
        elseif state == 'pending' and when <= now then
          put_into_queue(id, when)
        end
      end
    end
  end
  redis.call('HSET', arrivals, nonce, number, 'at', now)
  return reply
end)
