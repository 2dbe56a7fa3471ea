-- flags: allow-oom
-- Closes a group, if it has all members that its maker was to make: no member is added any more. If all have ended, its
-- follow-up is due.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name, 3 how many members it has from number 0 on, if that is more than its maker was to make
-- returns  1 done, now or before, 0 there is no such group; -n: n members are missing, and it stays open. Their maker did
--          not make them yet, or the server lost them.

-- include names
-- include format
-- include features

-- Another client may have deleted what says that there are groups.
if not uses.groups and redis.call('EXISTS', own_key('group:' .. ARGV[2])) == 1 then note_feature('groups') end

-- include records
-- include groups
-- include members
-- include ring

local group = redis.pcall('HMGET', group_key(ARGV[2]), 'on_failed', 'left', 'ended', 'closed', 'asked')
if not bits_of or group.err or not group[1] then return 0 end
local asked = math.max(number_up_to(MOST_MEMBERS, group[5]) or 0, tonumber(ARGV[3] or 0))
local missing = group[4] and 0 or missing_before(ARGV[2], asked)
if missing > 0 then return -missing end
return ring_after(function()
  redis.call('HSET', group_key(ARGV[2]), 'closed', 1)
  if group[2] == '0' and not group[3] then complete_group(ARGV[2]) end
  return 1
end, true)
