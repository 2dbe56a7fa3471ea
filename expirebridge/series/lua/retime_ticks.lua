-- flags: (none: refused whole when memory is full)
-- Moves the waiting ticks of series to the times that newer data of their time zones give.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then for each series: id, the ms for which its waiting tick stands, the ms for
--          which it is to stand, when that is due, when the tick after it is due ('' : never), by which
--          data that was computed
-- returns  for each series: 1 moved, 2 it stays, or the series changed, 3 these data are not later
--
-- A tick that began stays, and one that a client moved, paused or deleted: that was meant.

-- include names
-- include format
-- include clock
-- include records
-- include series
-- include series_keys
-- include ring

local MOVED, STAYS, NOT_LATER = 1, 2, 3

local function waits_as_made(id, due)
  local record = read(id, { 'started' })
  return record and record.state == 'pending' and not record.started and read_timer(id, record) == due
end

local function retime(series, latest, at, due, successor, tzdata)
  local known = redis.pcall('HMGET', series_key(series), 'tick', 'due', 'tzdata', 'paused')
  if known.err or tonumber(known[1] or nil) ~= latest or known[4] then return STAYS end
  if tzdata_number(tzdata) <= tzdata_number(known[3]) then return NOT_LATER end
  local id = tick_id(series, latest)
  if waits_as_made(id, tonumber(known[2])) then
    if at ~= latest then
      drop_waiting(series, latest)
      advance(series, at, due, successor, tzdata)
      return MOVED
    end
    redis.call('HSET', record_key(id), 'tick', tick_times(at, successor))
  end
  redis.call('HSET', series_key(series), 'tzdata', tzdata)
  redis.call('ZADD', tzdata_set(), tzdata_number(tzdata), series)
  return STAYS
end

return ring_after(function()
  local reply = {}
  for at = 2, #ARGV, 6 do
    reply[#reply + 1] = retime(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]),
      tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5])
  end
  return reply
end)
