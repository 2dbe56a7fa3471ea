-- flags: allow-oom
-- Deletes a batch that has arrived.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the move, 3 number of the batch
-- returns  1

-- include names
-- include format

local known = redis.call('HMGET', own_key('move'), 'nonce', 'number')
if known[1] == ARGV[2] and known[2] == ARGV[3] then
  redis.call('HDEL', own_key('move'), 'parcel', 'items')
end
return 1
