-- flags: (none: refused whole when memory is full)
-- Lets tasks be moved here from another database.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 where they come from
-- returns  1, or the error EXPIREBRIDGE_MOVE: nothing is written then
--
-- A move of this database's own tasks is ended: a mover that still runs is refused from now on. The ordered lanes are
-- closed until `open_lanes`: what has begun elsewhere may still run.

-- include names
-- include format
-- include clock
-- include features

if redis.call('HEXISTS', own_key('move'), 'parcel') == 1 then
  return redis.error_reply('EXPIREBRIDGE_MOVE the tasks of this database are being moved '
    .. (moving or 'elsewhere') .. ', and some are on their way: finish that first, with the same command')
end
note_feature('moving')
redis.call('HSET', own_key('arrivals'), 'at', now)
if moving ~= 'from ' .. ARGV[2] then redis.call('HSET', own_key('arrivals'), 'closed', 1) end
redis.call('HSET', meta_key, 'moving', 'from ' .. ARGV[2])
return 1
