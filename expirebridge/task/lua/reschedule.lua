-- flags: (none: refused whole when memory is full)
-- Moves the due time of a task, and its timer with it.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id, 4 'in' or 'at', 5 ms (from now, or since 1970)
-- returns  1 done, 2 rearmed, 4 finished, 5 not found, 7 elsewhere
--
-- A paused task becomes pending. While a handler runs, the new time is only noted, and the task waits
-- for it once the run is settled.

-- include clock
-- include records
-- include history
-- include rearm
-- include producer_changes
-- include ring
-- include state_sets
-- include hooks

local nonce, id, ms = ARGV[2], ARGV[3], tonumber(ARGV[5])
local due = ARGV[4] == 'in' and now + ms or ms

local record, code = read_for_change(id, nonce, { 'nonce', 'next' })
if not record then return code end
if FINISHED[record.state] or record.next and record.ledger and is_erased(record.next) then
  return FINISHED_BEFORE
end
note_move(id, record, 'reschedule', due)
if record.state == 'running' then
  remember(id, record, nonce, REARMED)
  note_rearm(id, record, due)
  for i = 1, #on_revise do on_revise[i](id, record) end
  return REARMED
end
return ring_after(function()
  remember(id, record, nonce, DONE)
  wait_until(id, record, due)
  return DONE
end)
