-- flags: allow-oom
-- Makes a task due now. A finished one runs again, with its full number of attempts.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id
-- returns  1 done, 3 running, 5 not found, 7 elsewhere

-- include names
-- include clock
-- include records
-- include waits
-- include history
-- include resends
-- include changes
-- include ledger

-- The settlement that ended it may be sent again: its token is kept.
local function start_anew(id, record)
  redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
  local settled = record.token or record.settled
  if settled then redis.call('HSET', record_key(id), 'settled', settled) end
end

local nonce, id = ARGV[2], ARGV[3]
local record, code = read_for_change(id, nonce, { 'nonce', 'token', 'settled' })
if not record then return code end
if record.state == 'running' then return RUNNING end
return ring_after(function()
  if FINISHED[record.state] then
    note_end(id, record.state)
    start_anew(id, record)
    raise_generation(id, record)
  end
  remember(id, record, nonce, DONE)
  note_move(id, record, 'run_now', now)
  wait_until(id, record, now)
  return DONE
end)
