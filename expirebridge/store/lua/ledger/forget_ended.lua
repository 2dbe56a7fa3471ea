-- flags: allow-oom
-- Forgets tasks of the ledger whose rows are to be deleted: those that have ended, and whose rows know it.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the ledger, 3 the least number of a pass that is to be known here, then ids
-- returns  for each id: 1 nothing of the row is left here, 0 its task has not ended, or its row has
--          something to learn, or this is another ledger's, or has lost something: the row is to stay

-- include names
-- include clock
-- include records
-- include state_sets
-- include ledger

local function leaves(id)
  if redis.call('ZSCORE', state_set('dirty'), id) then return 0 end
  local record = read(id, { 'ended' })
  if not record or not record.ledger then return 1 end
  if not FINISHED[record.state] or now - (tonumber(record.ended) or 0) < LATE_EVENTS then return 0 end
  forget(id, record.state)
  return 1
end

local nonce, number = read_binding()
local knows = nonce == ARGV[2] and number >= tonumber(ARGV[3])
local reply = {}
for at = 4, #ARGV do reply[#reply + 1] = knows and leaves(ARGV[at]) or 0 end
return reply
