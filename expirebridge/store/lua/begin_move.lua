-- flags: allow-oom
-- Begins, or resumes, to move the tasks of this database to another one.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms, 3 where to, 4 nonce for a new move
-- returns  nonce of the move; or the errors EXPIREBRIDGE_MOVE and EXPIREBRIDGE_OLDER_LISTENERS: nothing is
--          written then
--
-- The hash `move` holds nonce, where to, the number of the last parcel, and that parcel until it has
-- arrived, with the number of its `items`; `at` is when the mover was last here.

-- include names
-- include clock
-- include format
-- include raise_format

local function refuse(why) return redis.error_reply('EXPIREBRIDGE_MOVE ' .. why) end

local known = redis.call('HMGET', own_key('move'), 'nonce', 'to', 'parcel')
if type(redis.pcall('HGET', ledger_key(), 'nonce')) == 'string' then
  return refuse('this database has a ledger, whose rows say where its tasks are: it cannot be moved')
end
if moving and string.sub(moving, 1, 5) == 'from ' and moving ~= 'from ' .. ARGV[3] then
  return refuse('tasks arrive here ' .. moving .. ': finish that first; if that is this very database, '
    .. 'there is nothing to move')
end
if known[2] ~= ARGV[3] and known[3] then
  return refuse('some tasks of this database are on their way to ' .. known[2] .. ': finish that first')
end
local refused = raise_format(tonumber(ARGV[2]))
if refused then return refused end
if known[2] ~= ARGV[3] then
  redis.call('DEL', own_key('move'))
  -- Each partition counts its own parcels.
  known[1] = home .. ARGV[4]
  redis.call('HSET', own_key('move'), 'nonce', known[1], 'to', ARGV[3], 'number', 0)
end
redis.call('HSET', own_key('move'), 'at', now)
redis.call('HSET', meta_key, 'moving', 'to ' .. ARGV[3])
return known[1]
