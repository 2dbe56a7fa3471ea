-- flags: no-writes
-- Reads how many tasks a signal has decided, and how many their deadline.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  both numbers, nil for none; nothing if no task of this database ever waited for a signal

-- include names
-- include format

local found = uses.signals and redis.pcall('HMGET', own_key('signals'), 'signalled', 'passed') or {}
return found.err and {} or found
