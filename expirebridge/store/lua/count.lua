-- flags: no-writes
-- Counts tasks by state.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms
-- returns  pending, paused, running, succeeded, failed, cancelled, overdue, listeners that beat

-- include names
-- include clock
-- include format

local reply = {}
for i, state in ipairs({ 'pending', 'paused', 'running', 'succeeded', 'failed', 'cancelled' }) do
  reply[i] = redis.call('ZCARD', state_set(state))
end
reply[7] = redis.call('ZCOUNT', state_set('pending'), '-inf', now)
reply[8] = redis.call('ZCOUNT', listeners_key, now - tonumber(ARGV[2]), '+inf')
return reply
