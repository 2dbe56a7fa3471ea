-- flags: no-writes
-- Reads the number of the last batch of a move that arrived here.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the move
-- returns  the number; 0 if none has arrived

-- include names
-- include format

return tonumber(redis.call('HGET', own_key('arrivals'), ARGV[2]) or nil) or 0
