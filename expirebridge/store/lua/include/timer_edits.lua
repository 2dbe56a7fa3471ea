-- How often a paused task's timer is looked at again, in ms: an edit that nobody heard is then
-- followed late, but is followed.
local PAUSED_LOOK = 300000

-- Another client may have put the timer of a waiting task off, brought it forward, or taken its
-- end away. Follows it, and returns the time at which the task is now due (nil: paused, or the
-- timer is gone, which alone changes nothing).
local function follow_timer(id, record)
  local timer = read_timer(id, record)
  if timer == 'none' then
    if record.state == 'pending' then
      local due = tonumber(redis.call('ZSCORE', state_set('pending'), id)) or now
      redis.call('HSET', record_key(id), 'left', math.max(due - now, 0))
    end
    move(id, record, 'paused', now + PAUSED_LOOK)
    return nil
  end
  if timer then move(id, record, 'pending', timer) end
  return timer
end

-- Somebody may have asked, while the handler ran, that the task run once more: by setting its timer
-- (a live one says so), or by rescheduling it (the record says so, even if that time has come). It
-- then waits for that time as if it had never run. Returns whether it does, and until when.
local function rearm(id, record)
  local timer = read_timer(id, record)
  if not timer and not record.rearm then return false end
  redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
  if record.token then redis.call('HSET', record_key(id), 'settled', record.token) end
  if timer then return true, follow_timer(id, record) end
  local due = tonumber(record.rearm)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
  return true, due
end
