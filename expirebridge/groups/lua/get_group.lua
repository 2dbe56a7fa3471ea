-- flags: no-writes
-- Reads a group.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name
-- returns  names and values of its hash: none if there is no such group

-- include format
-- include groups

local fields = redis.pcall('HGETALL', group_key(ARGV[2]))
return fields.err and {} or fields
