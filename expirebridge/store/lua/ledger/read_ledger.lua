-- flags: no-writes
-- Reads the state of this database's ledger.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  the nonce of the ledger ('': none), the number of the last batch, now in ms, number of dirty
--          ids, time since which the first of them is dirty, in microseconds (-1: none is)

-- include names
-- include format
-- include clock
-- include ledger

local nonce, number = read_binding()
local first = redis.call('ZRANGE', state_set('dirty'), 0, 0, 'WITHSCORES')
return { nonce, number, now, redis.call('ZCARD', state_set('dirty')), first[2] and tonumber(first[2]) or -1 }
