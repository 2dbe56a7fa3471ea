-- flags: allow-oom
-- Ends a hold, and lets go the first tasks that it held; sweeps let go the others.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 `func <name>` or `tag <tag>`
-- returns  nil

-- include names
-- include format
-- include doorbell
-- include holds
-- include lanes

ring_after(function()
  redis.pcall('HDEL', holds_key(), ARGV[2])
  touched[HOLD .. ARGV[2]] = true
end)
return false
