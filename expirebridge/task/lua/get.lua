-- flags: no-writes
-- Reads one task.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id
-- returns  nil, or {id, trigger key, state, due in ms, {name, value, ...}}; of a waiting task also the lane in
--          which it waits: {name, slots taken, tasks before it (-1: it is not in line), the limit, or the hold, as
--          it was declared, or nil, the number that was set for the lane, or nil}

-- include names
-- include records
-- include task_view
-- include hooks

local id = ARGV[2]
local record = read(id)
if not record then return false end
local reply = view(id, record.state, tonumber(redis.call('ZSCORE', state_set(record.state), id)))
for i = 1, reply and #on_show or 0 do on_show[i](id, reply) end
return reply
