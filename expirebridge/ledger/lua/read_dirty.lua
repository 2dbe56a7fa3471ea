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
-- include put_off

-- The last time in ms that a row can be due, and how many bytes it keeps of an error: other clients may have written
-- anything into a record.
local LAST_MS, MOST_ERROR = 2 ^ 53 - 2, 8192

local function score_of(number) return string.format('%.0f', number) end

-- Up to so many marked ids with scores in this range, each followed by its score.
local function marked(least, last, most)
  return redis.call('ZRANGEBYSCORE', state_set('dirty'), least, last, 'WITHSCORES', 'LIMIT', 0, most)
end

local nonce, number = read_binding()
local reply = { nonce, number }
local most = tonumber(ARGV[2])
local ids = marked('-inf', score_of(put_off_from), most)
for _, part in ipairs(marked(score_of(put_off_to), '+inf', most - #ids / 2)) do ids[#ids + 1] = part end
for i = 1, #ids, 2 do
  local record = read(ids[i], { 'due', 'left', 'next', 'rearm', 'attempt', 'error',
    'cancel' }) or { state = '' }
  local waits = record.state == 'pending' or record.state == 'running' or record.state == 'waiting'
  for _, value in ipairs({ ids[i], ids[i + 1], record.ledger or '', record.state,
    waits and number_up_to(LAST_MS, row_time_of(ids[i], record)) or -1, number_up_to(2 ^ 31, record.attempt) or 0,
    string.sub(record.error or '', -MOST_ERROR), record.cancel or '' }) do
    reply[#reply + 1] = value
  end
end
return reply
