-- flags: no-writes
-- Lists listeners, and the age of their last heartbeats.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 most names
-- returns  for each listener, the latest heartbeat first: its name, ms since then
--
-- The names of dead listeners stay until a sweep removes them.

-- include names
-- include format
-- include clock

local reply = redis.call('ZREVRANGE', listeners_key, 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 2, #reply, 2 do reply[i] = math.max(0, now - tonumber(reply[i])) end
return reply
