-- flags: no-writes
-- Counts the subscribers at the server of this partition: in a cluster each node counts its own.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  how many are subscribed to the doorbell, and to key events

-- include format
-- include ring

local database = string.match(ARGV[1], '^%d+')
local events = '__keyevent@' .. database .. '__:expired'
local counts = redis.call('PUBSUB', 'NUMSUB', doorbell_channel(database), events)
return { counts[2], counts[4] }
