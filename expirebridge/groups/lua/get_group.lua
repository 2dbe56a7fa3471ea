-- flags: no-writes
-- Reads a group.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name
-- returns  names and values of its hash: none if there is no such group

-- include format
-- include groups

-- Without this field it is none: closing it, and adding to it, find none either.
if type(redis.pcall('HGET', group_key(ARGV[2]), 'on_failed')) ~= 'string' then return {} end
return redis.call('HGETALL', group_key(ARGV[2]))
