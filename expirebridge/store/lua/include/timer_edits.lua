-- How often a paused task's timer is looked at again, in ms: an edit that nobody heard is then
-- followed late, but is followed.
local PAUSED_LOOK = 300000

-- Another client may have put the timer of a waiting task off, brought it forward, or taken its
-- end away. Follows it, and returns the time at which the task is now due (nil: paused, or the
-- timer is gone, which alone changes nothing).
local function follow_timer(id, record)
  local timer = read_timer(id, record)
  if timer == 'none' then
    move(id, record, 'paused', now + PAUSED_LOOK)
    return nil
  end
  if timer then move(id, record, 'pending', timer) end
  return timer
end

-- A timer that lives although its task was claimed was set while the handler ran: somebody wants
-- the task once more. It waits for that time, as if it had never run. Returns whether it does,
-- and until when.
local function rearm(id, record)
  if not read_timer(id, record) then return false end
  redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
  if record.token then redis.call('HSET', record_key(id), 'settled', record.token) end
  return true, follow_timer(id, record)
end
