-- flags: allow-oom
-- Walks over a part of the database and finds trigger keys without a record. It also follows timers of
-- known tasks that were edited while no listener ran, and gives records without a place in a state
-- set one: nothing else would ever look at them.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 cursor ('0' to begin), 3 about how many keys to walk over; and to
--          give records a place: 4 lease in ms, 5 ms to keep a failed task
-- returns  next cursor ('0': the walk is complete), keys that are not ours, ids that had no place,
--          then the names found

-- include names
-- include clock
-- include records
-- include timers
-- include places
-- include waits
-- include strays
-- include timer_edits

-- The id in a trigger key's name, or nil for any other key. Python reads the name in full; here
-- only enough of it is read to look for the record.
local function id_of(name)
  local rest = string.gsub(name, '^{[^{}]*}', '')
  local first = string.find(rest, '?', 1, true)
  if not first or string.sub(rest, first - 1, first - 1) ~= ':' then return nil end
  if not string.find(rest, '?', first + 1, true) then return nil end
  return string.sub(rest, 1, first - 2)
end

local function follow(id, record)
  if record.state == 'paused' then return follow_timer(id, record) end
  local timer = read_timer(id, record)
  local score = tonumber(redis.call('ZSCORE', state_set('pending'), id))
  if timer == 'none' or (timer and score and timer < score - 1) then
    return follow_timer(id, record)
  end
end

local lease, keep_failed = tonumber(ARGV[4]), tonumber(ARGV[5])
local page = redis.call('SCAN', ARGV[2], 'COUNT', ARGV[3])
local reply = { page[1], 0, {} }
local strays = reply[3]
local records = record_key('')

-- When a listener must look at a task of each state, if nothing else is known. A waiting task whose
-- timer is gone is due, as everywhere.
local LOOK_AT = {
  pending = function(id, record)
    local timer = read_timer(id, record)
    return type(timer) == 'number' and timer or now
  end,
  paused = function() return now + PAUSED_LOOK end,
  running = function() return now + lease end,
}

local function place_again(id)
  if not lease or not is_id(id) then return end
  local record = read(id)
  if record and redis.call('ZSCORE', state_set(record.state), id) then return end
  strays[#strays + 1] = id
  if not record then
    set_aside(id, 'pending', keep_failed)
  elseif LOOK_AT[record.state] then
    move(id, record, record.state, LOOK_AT[record.state](id, record))
  elseif FINISHED[record.state] then
    move(id, record, record.state, now + keep_failed)
  else
    finish(id, { state = 'pending' }, 'failed', keep_failed, 'error',
      'its record named the state ' .. record.state)
  end
end

local function look_at(name)
  local id = id_of(name)
  if id then
    local record = read(id)
    if not record or trigger_key(id, record) ~= name then
      reply[#reply + 1] = name
    elseif record.state == 'pending' or record.state == 'paused' then
      follow(id, record)
    elseif FINISHED[record.state] then
      reply[#reply + 1] = name
    end
  elseif string.sub(name, 1, #records) == records then
    place_again(string.sub(name, #records + 1))
  elseif not is_ours(name) then
    reply[2] = reply[2] + 1
  end
end

return ring_after(function()
  for _, name in ipairs(page[2]) do
    if in_slot(name) then look_at(name) end
  end
  return reply
end)
