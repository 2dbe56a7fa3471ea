-- flags: allow-oom
-- Begins, or resumes, to move the tasks of this database to another one.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 where to, 3 nonce for a new move
-- returns  nonce of the move; or the error EXPIREBRIDGE_MOVE: nothing is written then
--
-- The hash `move` holds nonce, target, the number of the last batch, and in `parcel` that batch until it has arrived,
-- with the number of its `items`; `at` is the time of the mover's last call.

-- include names
-- include format
-- include clock
-- include features
-- include groups

local function refuse(why) return redis.error_reply('EXPIREBRIDGE_MOVE ' .. why) end

local known = redis.call('HMGET', own_key('move'), 'nonce', 'to', 'parcel')
if type(redis.pcall('HGET', own_key('ledger'), 'nonce')) == 'string' then
  return refuse('this database has a ledger, whose rows say where its tasks are: it cannot be moved')
end
if moving and string.sub(moving, 1, 5) == 'from ' and moving ~= 'from ' .. ARGV[2] then
  return refuse('tasks arrive here ' .. moving .. ': finish that first; if that is this very database, '
    .. 'there is nothing to move')
end
if known[2] ~= ARGV[2] and known[3] then
  return refuse('some tasks of this database are on their way to ' .. known[2] .. ': finish that first')
end
if redis.call('ZCOUNT', state_set('groups'), UNENDED, '+inf') > 0 then
  return refuse('a group of this database has not ended: let it end, or cancel it (expirebridge groups)')
end
note_feature('moving')
-- A move that was turned round since, or the first one here, is a new one: its holds and weights go along.
if known[2] ~= ARGV[2] or moving ~= 'to ' .. ARGV[2] and not known[3] then
  redis.call('DEL', own_key('move'))
  -- Each partition counts its own batches.
  known[1] = home .. ARGV[3]
  redis.call('HSET', own_key('move'), 'nonce', known[1], 'to', ARGV[2], 'number', 0)
end
redis.call('HSET', own_key('move'), 'at', now)
redis.call('HSET', meta_key, 'moving', 'to ' .. ARGV[2])
return known[1]
