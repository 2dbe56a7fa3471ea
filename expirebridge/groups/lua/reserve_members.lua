-- flags: (none: refused whole when memory is full)
-- Gives out numbers for new members of a group. One that is not used leaves a gap, and nothing waits for it.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name of the group, 3 how many
-- returns  the first of them; -1: there is no such group, -2: it takes no more, or not so many

-- include format
-- include groups
-- include records

local group = redis.pcall('HMGET', group_key(ARGV[2]), 'next', 'closed')
if group.err or not group[1] then return -1 end
local first, count = number_up_to(MOST_MEMBERS, group[1]) or 0, tonumber(ARGV[3])
if group[2] or first + count > MOST_MEMBERS then return -2 end
redis.call('HSET', group_key(ARGV[2]), 'next', first + count)
return first
