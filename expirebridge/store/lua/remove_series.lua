-- flags: allow-oom
-- Removes series, each with its waiting tick. What runs, or is retried, runs to its end.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms, then ids
-- returns  for each: 1 removed, 3 not: a listener that beats carries its declaration, 5 not found

-- include names
-- include format
-- include series
-- include carriers

local REMOVED, CARRIED, NOT_FOUND = 1, 3, 5

local texts = texts_of_carriers(tonumber(ARGV[2]))

local function remove(id)
  local known = redis.pcall('HMGET', series_key(id), 'call', 'tick')
  local place = redis.call('ZSCORE', series_set(), id)
  if not place and (known.err or not known[1]) then return NOT_FOUND end
  if next(carried(texts, id)) then return CARRIED end
  if not known.err then drop_waiting(id, tonumber(known[2] or nil)) end
  redis.call('DEL', series_key(id))
  redis.call('ZREM', series_set(), id)
  redis.call('ZREM', tzdata_set(), id)
  return REMOVED
end

local reply = {}
for at = 3, #ARGV do reply[#reply + 1] = remove(ARGV[at]) end
return reply
