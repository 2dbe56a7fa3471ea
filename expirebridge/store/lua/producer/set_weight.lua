-- flags: (none: refused whole when memory is full)
-- Sets how many turns a tenant of a fair limit has beside others.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 limit, 3 tenant, 4 weight
-- returns  1
--
-- It counts from the tenant's next turn on.

-- include names
-- include format

local field = ARGV[2] .. ' ' .. ARGV[3]
if tonumber(ARGV[4]) == 1 then
  redis.call('HDEL', weights_key(), field)
else
  redis.call('HSET', weights_key(), field, ARGV[4])
end
return 1
