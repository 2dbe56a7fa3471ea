-- flags: no-writes
-- Reads the states of the first dirty tasks, to write them back into their rows.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 how many at most
-- returns  the nonce of the ledger, the number of the last batch, then for each id: id, since when it is
--          dirty, '<generation> <revision>' ('': there is no such record), state, when it is due in ms (-1: not
--          known, or paused), attempts, the last error, '1' if no further attempt follows

-- include names
-- include records
-- include ledger

local nonce, number = read_binding()
local reply = { nonce, number }
local ids = redis.call('ZRANGE', state_set('dirty'), 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 1, #ids, 2 do
  local record = read(ids[i], { 'due', 'left', 'next', 'rearm', 'attempt', 'error',
    'cancel' }) or { state = '' }
  local waits = record.state == 'pending' or record.state == 'running' or record.state == 'waiting'
  for _, value in ipairs({ ids[i], ids[i + 1], record.ledger or '', record.state,
    waits and row_time_of(ids[i], record) or -1, tonumber(record.attempt) or 0, record.error or '',
    record.cancel or '' }) do
    reply[#reply + 1] = value
  end
end
return reply
