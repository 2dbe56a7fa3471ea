-- include names
-- include clock
-- include records
-- include state_sets
-- include fleet
-- include new_tasks
-- include series_keys
-- gives tzdata_number, end_making, has_place, OF_TICKS, tick_id, tick_times, make_tick, drop_waiting, advance
-- gives NOT_DECLARED, count_declarations, view_of_series

-- A series is a recurring task: a hash, and a place in the set `series`. Its fields:
--   call, args, retry, timeout, misfire, tags   what each of its ticks gets
--   spec         its schedule, as Python reads it
--   overlap      'skip' or 'allow'
--   fingerprint  of all of the above
--   declared     1 if handlers declare it; absent for what a producer scheduled
--   seen         of a declared series: '<fingerprint>=<microseconds>' for each declared fingerprint, with the
--                time at which it was first seen, separated by spaces
--   made         when it was made, in ms: intervals count from there
--   tick         the ms for which its latest tick stands: the watermark
--   due          when that tick is due, in ms: later than `tick` by the jitter
--   tzdata       by which data of the time zone that was computed: their version (0: not known), and the
--                offset from UTC, in seconds, that they had then; absent without a zone
--   paused       since when it makes no ticks, in ms
-- and what happened: last, began, late, outcome, ended, succeeded, running, missed, overlapped, extra.
--
-- The place's score is `due`: when the latest tick is, the next one is to be made. So jitter spreads the
-- making, too. It is NEVER if none is to be made.
local NEVER = 9007199254740991
-- Series with a zone are in the set `tzdata`, too, with the version as a number.
local function tzdata_number(data)
  local year, first, second = string.match(data or '', '^(%d+)(%l?)(%l?)')
  local function place(letter) return letter and string.byte(letter) or 0 end
  return (tonumber(year) or 0) * 65536 + place(first) * 256 + place(second)
end

-- Ends a series: no more ticks are made.
local function end_making(series)
  redis.call('ZADD', series_set(), NEVER, series)
  redis.call('ZREM', tzdata_set(), series)
end

-- True if a series has a place here. One of a ledger has none: its hash holds what claims need.
local function has_place(series) return redis.call('ZSCORE', series_set(), series) end

local OF_TICKS = { 'args', 'retry', 'timeout', 'misfire', 'tags' }

local function tick_id(series, at) return string.format('%s@%.0f', series, at) end

-- The value of a tick's field `tick`: the ms for which it stands, and when the next one is due.
local function tick_times(at, successor)
  return successor and string.format('%.0f %.0f', at, successor) or at
end

-- Makes one tick, unless there is one of that id: it was made before, and may have ended.
local function make_tick(series, at, due, successor)
  local id = tick_id(series, at)
  if read(id) then return id end
  local values = redis.call('HMGET', series_key(series), 'call', unpack(OF_TICKS))
  local fields = { 'tick', tick_times(at, successor) }
  for i, name in ipairs(OF_TICKS) do
    if values[i + 1] then
      fields[#fields + 1] = name
      fields[#fields + 1] = values[i + 1]
    end
  end
  write(id, { call = values[1], args = values[2] }, due, fields)
  return id
end

-- Removes the waiting tick of a series, unless it began: then it runs to its end.
local function drop_waiting(series, at)
  local id = at and tick_id(series, at)
  local record = id and read(id, { 'started' })
  if not record or record.started or FINISHED[record.state] or record.state == 'running' then return end
  redis.call('DEL', trigger_key(id, record))
  forget(id, record.state)
end

-- Makes the next tick of a series, and moves its watermark and its place there.
local function advance(series, at, due, successor, tzdata)
  make_tick(series, at, due, successor)
  if tzdata == '' then
    redis.call('HSET', series_key(series), 'tick', at, 'due', due)
  else
    redis.call('HSET', series_key(series), 'tick', at, 'due', due, 'tzdata', tzdata)
    redis.call('ZADD', tzdata_set(), tzdata_number(tzdata), series)
  end
  redis.call('ZADD', series_set(), due, series)
end

local NOT_DECLARED = {}

-- By series, the declared fingerprints, each with the number of listeners that declare it. The declarations of a listener
-- are a text ' <series>=<fingerprint> ... ' in a hash; those of one without a heartbeat for two leases are ignored.
local function count_declarations(lease)
  -- With ZRANGE, which producers may send, too.
  local listeners = redis.call('ZRANGE', listeners_key, now - 2 * lease, '+inf', 'BYSCORE')
  local alike, declared = {}, {}
  for _, text in ipairs(values_of(declarations_key(), listeners)) do
    if text then alike[text] = (alike[text] or 0) + 1 end
  end
  for text, number in pairs(alike) do
    for word in string.gmatch(text, '%S+') do
      local series, fingerprint = string.match(word, '^([^=]*)=(%x+)')
      if series then
        local counts = declared[series] or {}
        counts[fingerprint] = (counts[fingerprint] or 0) + number
        declared[series] = counts
      end
    end
  end
  return declared
end

-- The fields of a series for a reader, in the order of series/replies.py.
local SHOWN_OF_SERIES = { 'call', 'args', 'spec', 'fingerprint', 'declared', 'made', 'tick', 'due',
  'tzdata', 'paused', 'last', 'began', 'late', 'outcome', 'ended', 'succeeded', 'running', 'missed',
  'overlapped', 'tags', 'retry', 'timeout', 'misfire' }

-- A series for a reader: id, its place, when its waiting tick is due (a client may have moved it) or nil,
-- that tick's state or nil, the state of the latest tick that began or nil, how many listeners declare
-- it, then the values; nil if it is gone.
local function view_of_series(id, declared)
  local values = redis.pcall('HMGET', series_key(id), unpack(SHOWN_OF_SERIES))
  local place = redis.call('ZSCORE', series_set(), id)
  if values.err or not values[1] or not place then return false end -- one of a ledger has no place
  local tick = values[7] and id .. '@' .. values[7]
  local waiting = tick and read(tick, { 'due', 'left' })
  local due = waiting and not FINISHED[waiting.state] and due_of(tick, waiting) or false
  local declarers = 0
  for _, count in pairs(values[5] and declared[id] or NOT_DECLARED) do declarers = declarers + count end
  local last = values[11] and read(values[11])
  return { id, place, due, waiting and waiting.state or false,
    last and last.state or false, declarers, values }
end
