-- flags: (none: refused whole when memory is full)
-- Fixes the number of partitions of a database on one server, in which nothing was written yet: writes
-- `meta` without a tag, before anything of a partition. Clients that assume one partition are refused from then on.
--
-- KEYS[1]  prefix, without a tag
-- ARGV     1 database, 2 number of partitions
-- returns  1, or the error EXPIREBRIDGE_PARTITIONS with the number that is written already: nothing is
--          written then

-- include names
-- include format

local count = tonumber(ARGV[2])
if count == partitions and written then return 1 end
if written then
  return redis.error_reply('EXPIREBRIDGE_PARTITIONS ' .. partitions .. ' ' .. count
    .. ': the database has another number of partitions; nothing was written')
end
redis.call('HSET', meta_key, 'format', KNOWN_FORMAT, 'partitions', count)
if count > 1 then redis.call('HSET', meta_key, 'features', 'partitions') end
return 1
