-- include names
-- include timers
-- include places
-- include doorbell

-- Lets a task wait, with its timer.
local function wait_until(id, record, due)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
end

-- Makes a change, and rings the doorbell if a task that now waits is the earliest of all; `move` and
-- `write` note the `soonest`.
local function ring_after(change)
  local first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')[2]
  local reply = change()
  if soonest < (tonumber(first) or math.huge) then tell_listeners(string.format('%.0f', soonest)) end
  return reply
end
