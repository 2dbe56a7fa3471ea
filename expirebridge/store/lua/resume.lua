-- flags: (none: refused whole when memory is full)
-- Lets a paused task go on: it is due when the time that was left has passed.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id
-- returns  1 done, 3 running, 4 finished, 5 not found
--
-- If another client gave the timer an end meanwhile, that is its due time.

-- include names
-- include clock
-- include format
-- include records
-- include resends
-- include timer_edits
-- include doorbell
-- include changes

local nonce, id = ARGV[2], ARGV[3]
local record = read(id, { 'nonce', 'left' })
if not record then return NOT_FOUND end
local done_before = answered(record, nonce)
if done_before then return done_before end
if FINISHED[record.state] then return FINISHED_BEFORE end
if record.state == 'running' then return RUNNING end
if record.state == 'paused' then
  remember(id, record, nonce, DONE)
  local before = earliest()
  local timer = read_timer(id, record)
  local due = type(timer) == 'number' and timer or due_of(id, record)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
  ring(due, before)
end
return DONE
