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
-- include migrated

local reply = {}
for i, state in ipairs({ 'pending', 'waiting', 'paused', 'running', 'succeeded', 'failed' }) do
  reply[i] = redis.call('ZCARD', state_set(state))
end
-- Migrated tasks are no longer here.
reply[7] = redis.call('ZCOUNT', state_set('cancelled'), -MIGRATED_OFFSET / 2, '+inf')
reply[8] = redis.call('ZCOUNT', state_set('pending'), '-inf', now)
reply[9] = redis.call('ZCOUNT', listeners_key, now - tonumber(ARGV[2]), '+inf')
if moving then
  local hash = string.sub(moving, 1, 3) == 'to ' and 'move' or 'arrivals'
  local known = redis.call('HMGET', own_key(hash), 'items', 'at')
  reply[10], reply[11] = moving, redis.call('ZCARD', series_set())
  reply[12], reply[13] = tonumber(known[1] or 0), known[2] and now - tonumber(known[2]) or -1
end
return reply
