-- flags: (none: refused whole when memory is full)
-- Makes a group, and its follow-up, which is paused until all members have ended.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name, 3 on_failed ('wait', 'run' or 'cancel'), 4 a digest of what it is made with, 5 one more
--          than the highest number of a member that its maker gives out; then the follow-up as in make.lua, if any
-- returns  {code, now}, and for a follow-up its due time if the group ended now, and its trigger key
--          codes: 1 made, 2 it is there, and was made with the same, 3 with something else, 4 an unfinished task has
--          the follow-up's id; or the error EXPIREBRIDGE_MOVE: nothing is written then

-- include names
-- include clock
-- include features
-- include state_sets
-- include timer_edits
-- include doorbell
-- include making
-- include groups
-- include format

local name, on_failed, definition, next = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local BEGUN, THERE, DIFFERS, TAKEN = 1, 2, 3, 4

local known = redis.call('HGET', group_key(name), 'definition')
if known then return { known == definition and THERE or DIFFERS, now } end
if moving and string.sub(moving, 1, 3) == 'to ' then
  return redis.error_reply('EXPIREBRIDGE_MOVE this database is being moved ' .. moving .. ': make the group there')
end

mark_format()
note_feature('groups')
return ring_after(function()
  local reply = { BEGUN, now }
  if ARGV[6] then
    local id, item = read_new(6)
    local code, due = make_alone(id, item, '')
    if code ~= MADE.created then return { TAKEN, now } end
    local record = { call = item.call, state = 'pending' }
    redis.call('HSET', record_key(id), 'left', math.max(due - now, 0))
    redis.call('SET', trigger_key(id, record), 0)
    move(id, record, 'paused', now + PAUSED_LOOK)
    redis.call('HSET', group_key(name), 'then', id)
    reply[3], reply[4] = due, trigger_key(id, record)
  end
  redis.call('DEL', group_key(name, '@members'))
  redis.call('HSET', group_key(name), 'made', now, 'definition', definition, 'on_failed', on_failed, 'next', next,
    'left', 0, 'succeeded', 0, 'failed', 0, 'cancelled', 0)
  redis.call('ZADD', state_set('groups'), UNENDED, name)
  return reply
end)
