-- flags: allow-oom
-- Deletes finished tasks of the ledger whose rows are up to date, before those rows are deleted.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the ledger, 3 the lowest batch number that must be known here, then ids
-- returns  for each id: 1 nothing of the row is left here, 0 keep the row: its task has not ended,
--          or is dirty, or this database is another ledger's, or has lost writes

-- include names
-- include clock
-- include records
-- include state_sets
-- include ledger
-- include format
-- include ring

local function leaves(id)
  if redis.call('ZSCORE', state_set('dirty'), id) then return 0 end
  local record = read(id, { 'ended' })
  if not record or not record.ledger then return 1 end
  if not FINISHED[record.state] or now - (tonumber(record.ended) or 0) < LATE_EVENTS then return 0 end
  forget(id, record.state)
  return 1
end

local nonce, number = read_binding()
local is_bound = nonce == ARGV[2] and number >= tonumber(ARGV[3])
local reply = {}
for at = 4, #ARGV do reply[#reply + 1] = is_bound and leaves(ARGV[at]) or 0 end
run_at_end()
return reply
