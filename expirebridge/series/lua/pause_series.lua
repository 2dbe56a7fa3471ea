-- flags: (none: refused whole when memory is full)
-- Pauses series: their waiting ticks are removed, and no others are made.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then ids
-- returns  for each: 1 paused, now or before, 5 not found

-- include format
-- include clock
-- include series
-- include series_keys
-- include ring

local PAUSED, NOT_FOUND = 1, 5

local function pause(id)
  local known = redis.pcall('HMGET', series_key(id), 'call', 'tick', 'paused')
  if known.err or not known[1] or not has_place(id) then return NOT_FOUND end
  if known[3] then return PAUSED end
  redis.call('HSET', series_key(id), 'paused', now)
  end_making(id)
  drop_waiting(id, tonumber(known[2] or nil))
  return PAUSED
end

return ring_after(function()
  local reply = {}
  for at = 2, #ARGV do reply[#reply + 1] = pause(ARGV[at]) end
  return reply
end, true)
