-- flags: (none: refused whole when memory is full)
-- Finds the series whose waiting tick was computed by older data of its time zone.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 the version of the caller's data, 3 how many of those to leave out, 4 most series
--          to return
-- returns  for each series: id, the ms for which its tick stands, schedule, when it was made, in ms, by
--          which data its tick was computed
--
-- An id without such a series is removed from the set.

-- include format
-- include series
-- include series_keys

local from, count = tonumber(ARGV[3]), tonumber(ARGV[4])
local found = redis.call('ZRANGEBYSCORE', tzdata_set(), '-inf', '(' .. tzdata_number(ARGV[2]),
  'LIMIT', from, count)
local reply = {}
for _, id in ipairs(found) do
  local known = redis.pcall('HMGET', series_key(id), 'tick', 'spec', 'made', 'tzdata')
  local tick = not known.err and tonumber(known[1] or nil)
  if tick and known[2] and known[4] then
    for _, value in ipairs({ id, tick, known[2], tonumber(known[3] or nil) or tick, known[4] }) do
      reply[#reply + 1] = value
    end
  else
    redis.call('ZREM', tzdata_set(), id)
  end
end
return reply
