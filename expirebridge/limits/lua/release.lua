-- flags: allow-oom
-- Ends a hold, and lets go the first tasks that it held; sweeps let go the others.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 `func <name>`, `tag <tag>` or `all`, 3 ms over which the tasks are let go, 0 for at once
-- returns  nil

-- include names
-- include format
-- include holds
-- include lanes
-- include clock
-- include limits
-- include ring

ring_after(function()
  local lane, spread = HOLD .. ARGV[2], tonumber(ARGV[3])
  redis.pcall('HDEL', own_key('holds'), ARGV[2])
  if not touched then return end
  redis.pcall('HDEL', own_key('limits'), 'p ' .. lane)
  if spread > 0 and count_queue(lane) > 0 then
    change_lane('HSET', own_key('limits'), 'p ' .. lane, string.format('%.0f %.3f', now, spread / count_queue(lane)))
  end
  touched[lane] = true
end)
return false
