-- flags: (none: refused whole when memory is full)
-- Makes a group, and its follow-up, which is paused until all members have ended.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name, 3 on_failed ('wait', 'run' or 'cancel'), 4 a digest of what it is made with (of
--          several, in words, the first is stored), 5 one more than the highest number of a member that its maker
--          makes; then the follow-up as in make.lua, if any
-- returns  {code, now}, and for a follow-up its due time if the group ended now, and its trigger key
--          codes: 1 made, 2 it is there, and was made with the same, 3 with something else, 4 an unfinished task has
--          the follow-up's id; or the error EXPIREBRIDGE_MOVE: nothing is written then

-- include names
-- include clock
-- include features
-- include groups
-- include new_groups
-- include ring

local name, on_failed, definition, asked = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local BEGUN, THERE, DIFFERS, TAKEN = 1, 2, 3, 4

local known = redis.pcall('HGET', group_key(name), 'definition')
if type(known) == 'string' then
  return { string.find(' ' .. definition .. ' ', ' ' .. known .. ' ', 1, true) and THERE or DIFFERS, now }
end
definition = string.match(definition, '^%S+')
if is_leaving then return leaving() end

mark_format()
note_feature('groups')
return ring_after(function()
  local reply = { BEGUN, now }
  redis.call('DEL', group_key(name), group_key(name, '@members')) -- other clients may have written there
  if ARGV[6] then
    local id, key, due = make_follow_up(6)
    if not id then return { TAKEN, now } end
    redis.call('HSET', group_key(name), 'then', id)
    reply[3], reply[4] = due, key
  end
  redis.call('HSET', group_key(name), 'made', now, 'definition', definition, 'on_failed', on_failed, 'next', asked,
    'asked', asked, 'left', 0, 'succeeded', 0, 'failed', 0, 'cancelled', 0)
  redis.call('ZADD', state_set('groups'), UNENDED, name)
  return reply
end)
