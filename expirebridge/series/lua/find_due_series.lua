-- flags: (none: refused whole when memory is full)
-- Finds the series whose latest tick is due: the next one must be made.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 most series to return
-- returns  now, the ms at which the next series follows that is not returned (-1: none), then for each
--          series: id, the ms for which its latest tick stands, schedule, when it was made, in ms
--
-- A place without a record, and a record that another client overwrote, make no ticks: such a place is
-- removed.

-- include format
-- include clock
-- include series_keys

local found = redis.call('ZRANGE', series_set(), 0, tonumber(ARGV[2]), 'WITHSCORES')
local reply = { now, -1 }
for at = 1, #found, 2 do
  local score = tonumber(found[at + 1])
  if score > now or at > 2 * tonumber(ARGV[2]) then
    reply[2] = score
    break
  end
  local known = redis.pcall('HMGET', series_key(found[at]), 'spec', 'made', 'tick')
  local tick = not known.err and tonumber(known[3] or nil)
  if tick and known[1] then
    reply[#reply + 1] = found[at]
    reply[#reply + 1] = tick
    reply[#reply + 1] = known[1]
    reply[#reply + 1] = tonumber(known[2] or nil) or tick
  else
    redis.call('ZREM', series_set(), found[at])
  end
end
return reply
