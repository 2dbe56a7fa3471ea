-- flags: no-writes
-- Reads what is known of how long the handlers of functions take.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  for each function: its name, and the field that `note_durations` wrote

-- include names
-- include format

local found = redis.pcall('HGETALL', own_key('durations'))
return found.err and {} or found
