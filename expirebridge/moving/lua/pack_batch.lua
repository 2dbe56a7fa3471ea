-- flags: allow-oom
-- Packs tasks, or series, into a batch, which alone holds them until it has arrived. Returns the present batch if
-- that has not arrived yet.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the move, 3 number of the last batch that arrived, 4 lease in ms,
--          5 what to pack: a state, 'series', or 'lanes': failed tasks that keep ordered lanes waiting,
--          6 how many to pass over; with 'lanes', a cursor, 7 most to look at
-- returns  number of the batch (0: nothing was packed), 1 if listeners live here, how many to pass over
--          next time (-1: there are no more), 1 if this database has forgotten batches that arrived, 1 if tasks
--          of ordered lanes that were looked at are still here, or may be, then
--          id, 1 if it is a series, and content of each; or the error EXPIREBRIDGE_MOVE
--
-- A waiting task is packed as pending with its due time, and its lanes are left: the other database has its own. But
-- the slot of an ordered lane is the task's until it ends: it goes along. So does that of one that a hold let go later.
--
-- Tasks that are due soon or wait, and ticks of series, are left to the listeners here while any sends heartbeats: so
-- no task is late because the mover stopped. So is a task whose key is gone before its time: if a client deleted it,
-- a listener is about to get the event. Those of ordered lanes do not begin here any longer: they go at once, in order.

-- include names
-- include format
-- include clock
-- include records
-- include timer_edits
-- include fleet
-- include migrated
-- include limits
-- include lanes
-- include lane_names
-- include ring
-- include lane_keys
-- include series_keys
-- include hooks

local nonce, arrived, lease, what = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local skip, count = tonumber(ARGV[6]), tonumber(ARGV[7])
local SOON, MOST_BYTES = 5000, 262144
-- What says where a task stands in the lanes of this database.
local OF_LANES = ' state slots queue tenant parked '
local STAY_BEHIND = all_fields({ 'key' }, left_fields)

local move_key = own_key('move')
local known = redis.call('HMGET', move_key, 'nonce', 'number', 'to', 'parcel')
if known[1] ~= nonce or moving ~= 'to ' .. (known[3] or '') then
  return redis.error_reply('EXPIREBRIDGE_MOVE this move was ended, or turned round, by another one')
end
redis.call('HSET', move_key, 'at', now)
local number = tonumber(known[2])
local attended = now - last_beat() < lease
local reply = { 0, attended and 1 or 0, -1, arrived > number and 1 or 0, 0 }
local function note_left() reply[5] = 1 end

local function add_all(items)
  for _, item in ipairs(items) do
    reply[#reply + 1] = item[1]
    reply[#reply + 1] = item[2] == 'series' and 1 or 0
    reply[#reply + 1] = cmsgpack.pack(item)
  end
  return reply
end

if known[4] then
  reply[1], reply[3], reply[5] = number, skip, 1
  return add_all(cmsgpack.unpack(known[4]))
end

-- True if the database has ordered limits.
local has_order = false
for _, limit in ipairs(limit_of and redis.pcall('HGETALL', own_key('limits')) or {}) do
  has_order = has_order or string.find(limit, '"ordered"', 1, true) ~= nil
end

-- The ordered lane of a task, or nil. A tick stays with its series, which runs on one side at a time.
local function order_of(record)
  if not has_order or record.tick then return nil end
  local limits = limits_of(string.match(record.call, '^[^?]*'))
  local limit = limits and limit_of(limits[1][1])
  return limit and limit.ordered and lanes_of(limits, record)[1] or nil
end

-- True if a task stays with its listeners, since it is due soon, or waits.
local function stays(id, score)
  if not attended or what ~= 'waiting' and (what ~= 'pending' or score >= now + SOON) then return false end
  local known = redis.pcall('HMGET', record_key(id), 'call', 'tick')
  local limits = not known.err and known[1] and not known[2] and limits_of(string.match(known[1], '^[^?]*'))
  return not (limits and (limit_of(limits[1][1]) or {}).ordered)
end

-- The state and the due time with which a task is moved; nil if it stays for now.
local function way_of(id, record, score, order)
  if FINISHED[record.state] then return record.state, score end
  local timer = read_timer(id, record)
  if timer == 'none' then
    if record.state == 'paused' then return 'paused', score end
    follow_timer(id, record)
    return nil
  end
  local is_behind = order and record.state == 'pending' and not record.slots
    and (count_queue(order) > 0 or redis.call('EXISTS', order_key(order)) == 1)
  if is_behind then
    note_left()
    return nil -- behind those that wait
  end
  local is_left = not timer and score > now or timer and timer < now + SOON
  if order then is_left = record.state == 'pending' and not timer and score > now end
  if attended and is_left then return nil end
  return 'pending', timer or record.state ~= 'paused' and score or now
end

-- The slots that a task keeps wherever it is; nil if it has none. One that a hold let go later has not begun, but those
-- behind it must not overtake it.
local function slots_to_keep(id, record, score, due)
  local slots, keeps = {}, record.slots and KEEPS[record.state == 'failed' and 'blocking' or 'ordered']
  local is_later = record.slots and record.state == 'pending' and due and due > now and math.abs(due - score) <= 2
    and is_granted(id)
  for lane in string.gmatch(record.slots or '', '[^\n]+') do
    if keeps(limit_of(lane) or {}, record.started or is_later) then slots[#slots + 1] = lane end
  end
  return slots[1] and table.concat(slots, '\n')
end

local function pack_task(id, score)
  if not is_id(id) then return nil end
  local values = redis.pcall('HGETALL', record_key(id))
  if values.err then return nil end
  local record, fields = { state = 'pending' }, {}
  for i = 1, #values, 2 do
    record[values[i]] = values[i + 1]
    if not string.find(OF_LANES, ' ' .. values[i] .. ' ', 1, true) then
      fields[#fields + 1] = values[i]
      fields[#fields + 1] = values[i + 1]
    end
  end
  if not record.call or record.state ~= (what == 'lanes' and 'failed' or what) or attended and record.tick then
    return nil
  end
  local state, due = way_of(id, record, score, order_of(record))
  local slots = limit_of and slots_to_keep(id, record, score, due)
  if slots then put_value(fields, 'slots', slots) end
  return state and { id, state, due, fields }, record
end

-- Replaces a packed task by the record that stays for a while: see migrated.lua.
local function leave(id, record)
  redis.call('DEL', trigger_key(id, record))
  if leave_lanes then leave_lanes(id) end
  for tag in string.gmatch(record.tags or '', '%S+') do redis.pcall('SREM', tag_set(tag), id) end
  redis.call('DEL', record_key(id))
  redis.call('HSET', record_key(id), 'call', record.call, 'made', record.made or 0, 'state', 'cancelled',
    'due', now, 'ended', now, 'error', MIGRATED .. moving)
  for _, name in ipairs(STAY_BEHIND) do
    if record[name] then redis.call('HSET', record_key(id), name, record[name]) end
  end
  redis.call('ZADD', state_set('cancelled'), now + LATE_EVENTS - ASIDE, id)
  redis.call('ZREM', state_set(record.state), id)
end

local function pack_series(id, score)
  local fields = redis.pcall('HGETALL', series_key(id))
  return not fields.err and fields[1] and { id, 'series', score, fields } or nil
end

local function leave_series(id)
  redis.call('DEL', series_key(id))
  redis.call('ZREM', series_set(), id)
  redis.call('ZREM', tzdata_set(), id)
end

-- The failed tasks that have slots in a page of the ordered lanes, each with its score. Of others that have one, it is
-- noted that they are here.
local function failed_in_lanes()
  local ids = {}
  if not has_order then return ids end
  local page = change_lane('ZSCAN', own_key('lanes'), string.format('%.0f', skip), 'COUNT', count)
  reply[3] = page[1] == '0' and -1 or tonumber(page[1])
  for i = 1, #page[2], 2 do
    local limit = limit_of(page[2][i])
    for _, id in ipairs(limit and limit.ordered and change_lane('SRANDMEMBER', lane_key(page[2][i]), 20) or {}) do
      local known = redis.pcall('HMGET', record_key(id), 'state', 'tick')
      local score = known[1] == 'failed' and redis.call('ZSCORE', state_set('failed'), id)
      if score then
        ids[#ids + 1], ids[#ids + 2] = id, score
      elseif not known[2] then
        note_left()
      end
    end
  end
  return ids
end

local pack, go, set = pack_task, leave, state_set(what)
if what == 'series' then pack, go, set = pack_series, leave_series, series_set() end
local items, records, bytes, ids = {}, {}, 0, nil
if what == 'lanes' then
  ids = failed_in_lanes()
else
  local from = attended and (what == 'pending' or what == 'waiting') and not has_order and now + SOON or '-inf'
  ids = redis.call('ZRANGEBYSCORE', set, from, '+inf', 'WITHSCORES', 'LIMIT', skip, count)
  if #ids > 0 then reply[3] = skip end
end
for i = 1, #ids, 2 do
  if bytes > MOST_BYTES then
    note_left()
    break
  end
  local item, record
  if not stays(ids[i], tonumber(ids[i + 1])) then item, record = pack(ids[i], tonumber(ids[i + 1])) end
  if item then
    items[#items + 1], records[#records + 1] = item, record or false
    for _, value in ipairs(item[4]) do bytes = bytes + #value end
  elseif what ~= 'lanes' then
    reply[3] = reply[3] + 1
  end
end
if not items[1] then
  -- Some may have been paused.
  run_at_end()
  return reply
end
reply[1] = math.max(number, arrived) + 1
redis.call('HSET', move_key, 'number', reply[1], 'parcel', cmsgpack.pack(items), 'items', #items)
for i, item in ipairs(items) do go(item[1], records[i]) end
run_at_end()
return add_all(items)
