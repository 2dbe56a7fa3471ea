-- flags: no-writes
-- Reads the last actions of operators.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 how many
-- returns  the actions, the latest first, as `note_action` wrote them

-- include names
-- include format

return redis.call('LRANGE', actions_key(), 0, tonumber(ARGV[2]) - 1)
