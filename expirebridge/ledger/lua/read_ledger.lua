-- flags: no-writes
-- Reads the state of this database's ledger.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  the nonce of the ledger ('': none), the number of the last batch, now in ms, number of dirty
--          ids that can be read, time since which the first of them is dirty, in microseconds (-1: none is, or it
--          was put off), number of those that are put off for long: their rows could not be written, how far
--          ahead rows are relayed, in ms ('': all are), what was lost and is not marked: see relay.lua, then some
--          of the ids that are put off for long

-- include names
-- include format
-- include clock
-- include ledger
-- include put_off

local nonce, number = read_binding()
-- An ordinary transaction locks a row for less than so many microseconds.
local LONG = 2000000

local dirty = state_set('dirty')
local first = redis.call('ZRANGE', dirty, 0, 0, 'WITHSCORES')
local since = tonumber(first[2] or nil) or PUT_OFF
local function put_off_for(pause)
  return redis.call('ZCOUNT', dirty, string.format('(%.0f', put_off_from + pause), string.format('(%.0f', put_off_to))
end
local reply = { nonce, number, now, redis.call('ZCARD', dirty) - put_off_for(0), since < PUT_OFF and since or -1,
  put_off_for(LONG), redis.call('HGET', ledger_key(), 'horizon') or '', read_unmarked() }
-- None is read where none is put off, which is so at almost every look.
if reply[6] > 0 then
  local least, most = string.format('(%.0f', put_off_from + LONG), string.format('(%.0f', put_off_to)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', dirty, least, most, 'LIMIT', 0, 10)) do reply[#reply + 1] = id end
end
return reply
