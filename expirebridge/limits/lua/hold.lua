-- flags: (none: refused whole when memory is full)
-- Puts a function, a tag or all tasks on hold: those that are due wait.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 `func <name>`, `tag <tag>` or `all`, 3 the hold as JSON: see holds.lua
-- returns  1 done, 0 not: it would end in the past

-- include names
-- include format
-- include features
-- include clock
-- include holds

local ends = end_of_hold(ARGV[3])
if ends and ends <= now then return 0 end
note_feature('limits')

-- include limits

change_lane('HSET', own_key('holds'), ARGV[2], ARGV[3])
-- It counts for what a release over a time has left.
redis.pcall('HDEL', own_key('limits'), 'p ' .. HOLD .. ARGV[2])
return 1
