-- flags: no-writes
-- Finds which ids have a record, in any state.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then ids
-- returns  for each id: 1 or 0

-- include records

local reply = {}
for at = 2, #ARGV do reply[#reply + 1] = read(ARGV[at]) and 1 or 0 end
return reply
