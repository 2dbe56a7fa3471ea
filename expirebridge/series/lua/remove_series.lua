-- flags: allow-oom
-- Removes series, each with its waiting tick. What runs, or is retried, runs to its end.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms, 3 nonce of this call, then ids
-- returns  for each: 1 removed, 3 not: a live listener declares it, 5 not found
--
-- The nonce is kept in a key of its own for a minute, since the series is gone.

-- include names
-- include format
-- include clock
-- include series
-- include series_keys
-- include ring

local REMOVED, DECLARED, NOT_FOUND = 1, 3, 5

local KEPT = 60000
local declared = count_declarations(tonumber(ARGV[2]))

local function remove(id)
  local known = redis.pcall('HMGET', series_key(id), 'spec', 'tick')
  local place = redis.call('ZSCORE', series_set(), id)
  local answer = own_key('removed:' .. ARGV[3] .. ':' .. id)
  if not place and (known.err or not known[1]) then return end_of(answer) == -2 and NOT_FOUND or REMOVED end
  if declared[id] then return DECLARED end
  if not known.err then drop_waiting(id, tonumber(known[2] or nil)) end
  redis.call('SET', answer, 0, 'PX', KEPT)
  redis.call('DEL', series_key(id))
  redis.call('ZREM', series_set(), id)
  redis.call('ZREM', tzdata_set(), id)
  return REMOVED
end

return ring_after(function()
  local reply = {}
  for at = 4, #ARGV do reply[#reply + 1] = remove(ARGV[at]) end
  return reply
end, true)
