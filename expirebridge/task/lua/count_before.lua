-- flags: no-writes
-- Counts the tasks of a state whose look-at time lies before each of some times.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 state, then times in ms
-- returns  the server's time in ms, tasks in the state, then the tasks before each time

-- include names
-- include format
-- include clock

local name = state_set(ARGV[2])
local reply = { now, redis.call('ZCARD', name) }
for i = 3, #ARGV do
  reply[i] = redis.call('ZCOUNT', name, '-inf', '(' .. ARGV[i])
end
return reply
