-- flags: allow-oom
-- Judges a claimed task whose row is not in the ledger. One that was sent early is not cancelled for that: the database
-- may have failed over, and its row may come back. It is put off, and after a while forgotten: it ends here, as a task
-- that is of no ledger, and a row of its id creates its task anew.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id, 3 token of its claim, 4 ms to keep it once it has ended, 5 why it ends
-- returns  0 it was not sent early, or a batch has come since; 1 put it off; 2 it has ended here

-- include names
-- include clock
-- include records
-- include state_sets
-- include ring

-- Time in ms that such a task waits for its row.
local PATIENCE = 30000

return ring_after(function()
  local id = ARGV[2]
  local record = read(id, { 'early', 'token', 'rearm' })
  local early = record and tonumber(record.early or nil)
  if not early then return 0 end
  local is_claimed = record.state == 'running' and record.token == ARGV[3]
  local runs_again = record.rearm or redis.call('EXISTS', trigger_key(id, record)) == 1
  if now - early < PATIENCE or not is_claimed or runs_again then return 1 end
  redis.call('HDEL', record_key(id), 'ledger', 'early')
  record.ledger = nil
  finish(id, record, 'cancelled', tonumber(ARGV[4]), 'error', ARGV[5])
  return 2
end)
