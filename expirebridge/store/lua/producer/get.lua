-- flags: no-writes
-- Reads one task.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id
-- returns  nil, or {id, trigger key, state, due in ms, {name, value, ...}}

-- include names
-- include records
-- include views

local record = read(ARGV[2])
if not record then return false end
return view(ARGV[2], record.state, tonumber(redis.call('ZSCORE', state_set(record.state), ARGV[2])))
