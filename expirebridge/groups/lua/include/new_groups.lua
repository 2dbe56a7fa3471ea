-- include names
-- include format
-- include clock
-- include state_sets
-- include timer_edits
-- include making
-- gives is_leaving, leaving, make_follow_up

-- True while the tasks of this database are moved elsewhere: those of a group would be moved one by one, and it would
-- wait for them for ever.
local is_leaving = moving and string.sub(moving, 1, 3) == 'to '

local function leaving()
  return redis.error_reply('EXPIREBRIDGE_MOVE this database is being moved ' .. moving .. ': make the group there')
end

-- Makes the follow-up of a group from ARGV[at] on, as in make.lua: paused, with its delay as the time left. Returns its
-- id, its trigger key, and when it would be due now; nil if an unfinished task has its id.
local function make_follow_up(at)
  local id, item = read_new(at)
  local code, due = make_plain(id, item, '')
  if code ~= MADE.created then return nil end
  local record = { call = item.call, state = 'pending' }
  redis.call('HSET', record_key(id), 'left', math.max(due - now, 0))
  redis.call('SET', trigger_key(id, record), 0)
  move(id, record, 'paused', now + CHECK_PAUSED_AFTER)
  return id, trigger_key(id, record), due
end
