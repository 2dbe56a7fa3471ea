-- flags: allow-oom
-- Frees the slots that a finished task keeps: in an ordered lane one that failed may keep all others waiting.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id
-- returns  1 done, 2 it has not ended, or has no slot, 5 not found

-- include records
-- include lanes
-- include format
-- include ring

local id = ARGV[2]
local record = read(id, { 'slots' })
if not record then return 5 end
if not leave_lanes or not FINISHED[record.state] or not record.slots then return 2 end
ring_after(function() leave_lanes(id) end, true)
return 1
