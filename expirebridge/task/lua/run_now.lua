-- flags: allow-oom
-- Makes a task due now. A finished one runs again, with its full number of attempts.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id
-- returns  1 done, 3 running, 4 finished: its arguments were erased, 5 not found, 7 elsewhere, 8 waiting for a slot

-- include clock
-- include records
-- include history
-- include rearm
-- include producer_changes
-- include ring
-- include state_sets
-- include hooks

local nonce, id = ARGV[2], ARGV[3]
local record, code = read_for_change(id, nonce, { 'nonce', 'token', 'settled' })
if not record then return code end
if record.state == 'running' then return RUNNING end
if record.state == 'waiting' then return WAITING end
if record.ledger and is_erased(record) then return FINISHED_BEFORE end
return ring_after(function()
  if FINISHED[record.state] then
    start_anew(id, record)
    for i = 1, #on_again do on_again[i](id, record) end
  end
  remember(id, record, nonce, DONE)
  note_move(id, record, 'run_now', now)
  wait_until(id, record, now)
  return DONE
end)
