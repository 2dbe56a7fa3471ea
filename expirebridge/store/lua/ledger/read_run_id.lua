-- flags: no-writes
-- Which process this server is. It is asked like this, for a key leads to the right node of a cluster.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  the run id; '' if the login may not ask, or the server does not say

local info = redis.pcall('INFO', 'server')
return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
