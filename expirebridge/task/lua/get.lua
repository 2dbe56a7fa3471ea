-- flags: no-writes
-- Reads one task.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id
-- returns  nil, or {id, trigger key, state, due in ms, {name, value, ...}}; of a waiting task also the lane in
--          which it waits: {name, slots taken, tasks before it (-1: it is not in line), the limit, or the hold, as
--          it was declared, or nil}

-- include names
-- include records
-- include task_view
-- include places

local id = ARGV[2]
local record = read(id, { 'queue' })
if not record then return false end
local reply = view(id, record.state, tonumber(redis.call('ZSCORE', state_set(record.state), id)))
if reply and record.state == 'waiting' and record.queue then reply[6] = place_of(id, record.queue) end
return reply
