-- flags: allow-oom
-- Removes a listener, so it is no longer counted or waited for. The others send a heartbeat at once: one of them
-- may have to subscribe to key events.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 listener
-- returns  1

-- include names
-- include format
-- include fleet
-- include ring

redis.call('ZREM', listeners_key, ARGV[2])
forget_codes({ ARGV[2] })
notify_listeners('beat')
return 1
