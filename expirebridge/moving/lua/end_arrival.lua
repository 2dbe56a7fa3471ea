-- flags: allow-oom
-- Notes that all tasks have arrived: an id without a record here no longer exists elsewhere.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  1

-- include names
-- include format
-- include arrivals

if string.sub(moving or '', 1, 5) == 'from ' then redis.call('HDEL', meta_key, 'moving') end
open_lanes()
return 1
