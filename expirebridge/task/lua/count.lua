-- flags: no-writes
-- Counts tasks by state.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms
-- returns  pending, waiting, paused, running, succeeded, failed, cancelled, overdue, live listeners; and
--          while there is a move: its direction ('to ...' or 'from ...'), series, tasks and series that are in a
--          batch, ms since the mover was last here (-1: not known)

-- include names
-- include format
-- include clock
-- include records
-- include hooks

local reply = {}
for i, state in ipairs({ 'pending', 'waiting', 'paused', 'running', 'succeeded', 'failed' }) do
  reply[i] = redis.call('ZCARD', state_set(state))
end
reply[7] = redis.call('ZCOUNT', state_set('cancelled'), -ASIDE / 2, '+inf')
reply[8] = redis.call('ZCOUNT', state_set('pending'), '-inf', now)
reply[9] = redis.call('ZCOUNT', listeners_key, now - tonumber(ARGV[2]), '+inf')
for i = 1, #on_count do on_count[i](reply) end
return reply
