-- flags: no-writes
-- Reads the live listeners, and how long due tasks have waited: for a listener, and for a slot.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms
-- returns  pending tasks whose look-at time has passed, ms since the earliest such time (0: none), the
--          same two numbers of waiting tasks, then the names of the live listeners
--
-- Scores are used as they are, although a timer may have been put off: a working listener looks at
-- every task whose score has passed, and moves it.

-- include names
-- include format
-- include clock

local overdue = redis.call('ZCOUNT', state_set('pending'), '-inf', now)
local waited = 0
if overdue > 0 then
  local earliest = tonumber(redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')[2])
  waited = now - math.max(earliest, 0)
end
local reply = { overdue, waited, redis.call('ZCARD', state_set('waiting')), 0 }
if reply[3] > 0 then
  local earliest = tonumber(redis.call('ZRANGE', state_set('waiting'), 0, 0, 'WITHSCORES')[2])
  reply[4] = math.max(now - math.max(earliest, 0), 0)
end
local from = now - tonumber(ARGV[2])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', listeners_key, from, '+inf')) do
  reply[#reply + 1] = name
end
return reply
