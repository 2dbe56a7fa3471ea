-- flags: allow-oom
-- Closes a group: no member is added any more. If all have ended, its follow-up is due.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name
-- returns  1 done, now or before, 0 there is no such group

-- include names
-- include format
-- include state_sets
-- include doorbell
-- include groups

local group = redis.pcall('HMGET', group_key(ARGV[2]), 'on_failed', 'left', 'ended')
if not groups or group.err or not group[1] then return 0 end
return ring_after(function()
  redis.call('HSET', group_key(ARGV[2]), 'closed', 1)
  if group[2] == '0' and not group[3] then groups.complete(ARGV[2], move) end
  return 1
end, true)
