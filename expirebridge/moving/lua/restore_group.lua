-- flags: (none: refused whole when memory is full)
-- Makes a group as it was in another database. Its members are made later, and not counted again.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name, 3 what it knows of its members (see groups.lua), 4 n, then n names and values of its hash,
--          then its follow-up as in make.lua, if it is paused
-- returns  1 made, 2 there is a group of that name, which stays, 3 an unfinished task has the follow-up's id; or the
--          error EXPIREBRIDGE_MOVE: nothing is written then

-- include names
-- include features
-- include groups
-- include new_groups
-- include ring

local name, members, count = ARGV[2], ARGV[3], tonumber(ARGV[4])
local MADE_NOW, THERE, TAKEN = 1, 2, 3

if redis.call('EXISTS', group_key(name)) == 1 then return THERE end
if is_leaving then return leaving() end

mark_format()
note_feature('groups')
return ring_after(function()
  local follow_up = 5 + 2 * count
  if ARGV[follow_up] and not make_follow_up(follow_up) then return TAKEN end
  redis.call('SET', group_key(name, '@members'), members)
  redis.call('HSET', group_key(name), unpack(ARGV, 5, follow_up - 1))
  local ended = redis.call('HGET', group_key(name), 'ended')
  redis.call('ZADD', state_set('groups'), ended and ended + KEPT_GROUP or UNENDED, name)
  return MADE_NOW
end)
