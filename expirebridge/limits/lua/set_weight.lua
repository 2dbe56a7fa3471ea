-- flags: (none: refused whole when memory is full)
-- Sets how many turns a tenant of a fair limit has beside others.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 limit, 3 tenant, 4 weight
-- returns  1 done, 2 no handler has such a limit, 3 it is not fair
--
-- A weight that was set before can be taken back, whatever became of its limit. It counts from the tenant's next turn on.

-- include names
-- include format
-- include limits

local DONE, UNKNOWN, UNFAIR = 1, 2, 3
local field, is_usual = ARGV[2] .. ' ' .. ARGV[3], tonumber(ARGV[4]) == 1

if is_usual and redis.call('HDEL', own_key('weights'), field) == 1 then return DONE end
local limit = read_json and read_json(own_key('limits'), 'l ' .. ARGV[2])
if not limit or not next(limit) then return UNKNOWN end
if not limit.fair then return UNFAIR end
if not is_usual then
  redis.call('HSET', own_key('weights'), field, ARGV[4])
end
return DONE
