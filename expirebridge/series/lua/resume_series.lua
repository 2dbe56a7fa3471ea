-- flags: (none: refused whole when memory is full)
-- Resumes a paused series.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id, 3 fingerprint, 4 the next tick's ms ('' : there is none any more), 5 when it
--          is due, 6 when the tick after it is due ('' : never), 7 by which data of the zone that was
--          computed ('' : no zone)
-- returns  1 resumed, or not paused, 4 it changed meanwhile, or its next time has passed, 5 not found

-- include format
-- include clock
-- include ring
-- include series
-- include series_keys

local RESUMED, RACE, NOT_FOUND = 1, 4, 5

local id, at = ARGV[2], tonumber(ARGV[4])
local known = redis.pcall('HMGET', series_key(id), 'call', 'fingerprint', 'paused')
if known.err or not known[1] then return NOT_FOUND end
if not known[3] then return RESUMED end
if (known[2] or '') ~= ARGV[3] or (at and at <= now) then return RACE end
return ring_after(function()
  redis.call('HDEL', series_key(id), 'paused')
  if at then
    advance(id, at, tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7])
    notify_listeners('beat')
  end
  return RESUMED
end)
