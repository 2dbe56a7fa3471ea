-- flags: no-writes
-- Counts the numbers of a group, among those that were given out for members, that were not made.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name of the group, 3 the first number, 4 how many
-- returns  how many; -1: there is no such group

-- include format
-- include groups

local from, count = tonumber(ARGV[3]), tonumber(ARGV[4])

local known = redis.pcall('HGET', group_key(ARGV[2]), 'on_failed')
if type(known) ~= 'string' then return -1 end
return missing_before(ARGV[2], from + count) - missing_before(ARGV[2], from)
