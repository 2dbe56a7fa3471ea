-- flags: (none: refused whole when memory is full)
-- Moves the due time of a task, and its timer with it.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id, 3 'in' or 'at', 4 ms (from now, or since 1970)
-- returns  code, due in ms
--          codes: 1 moved, 2 rearmed, 3 finished, 4 not found
--
-- A paused task becomes pending. While a handler runs, the new time is noted, and the task waits for
-- it when the run is settled.

-- include names
-- include clock
-- include format
-- include records
-- include doorbell

local id, ms = ARGV[2], tonumber(ARGV[4])
local due = ARGV[3] == 'in' and now + ms or ms
local MOVED, REARMED, FINISHED_BEFORE, NOT_FOUND = 1, 2, 3, 4

local record = read(id)
if not record then return { NOT_FOUND, due } end
if FINISHED[record.state] then return { FINISHED_BEFORE, due } end
if record.state == 'running' then
  redis.call('HSET', record_key(id), 'rearm', due)
  set_timer(id, record, due)
  return { REARMED, due }
end
local before = earliest()
set_timer(id, record, due)
move(id, record, 'pending', due)
ring(due, before)
return { MOVED, due }
