-- flags: allow-oom
-- A listener says goodbye, so that nobody counts it, or waits for it, any longer. The others beat at
-- once: one of them may have to be its ear.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 listener
-- returns  1

-- include names
-- include doorbell
redis.call('ZREM', listeners_key, ARGV[2])
tell_listeners('beat')
return 1
