-- flags: no-writes
-- Reads the run id of this server. A script is used since its key leads to the right node of a cluster.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  the run id; '' if the login may not ask, or the server does not say

local info = redis.pcall('INFO', 'server')
return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
