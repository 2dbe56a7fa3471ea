-- include names
-- include clock
-- include state_sets
-- include history
-- gives CHECK_PAUSED_AFTER, WHILE_PAUSED, pause_new, follow_timer

-- After so many ms a paused task's timer is checked, and again, in case the event of an edit was missed.
local CHECK_PAUSED_AFTER = 300000
-- The due time of a paused task in its row.
local WHILE_PAUSED = 2 ^ 53 - 1

-- Pauses a task that has just been written, with no time left: its former due time is unknown.
local function pause_new(id, record)
  redis.call('HSET', record_key(id), 'left', 0)
  redis.call('SET', trigger_key(id, record), 0)
  move(id, record, 'paused', now + CHECK_PAUSED_AFTER)
end

-- The name of an edit in the history: anything that puts a watched task off is a beat.
local function kind_of_edit(id, due, timer)
  local watched = timer > (due or 0) and redis.call('HGET', record_key(id), 'ttl')
  return watched and 'beat' or 'edit'
end

-- Another client may have put the timer of a waiting task off, brought it forward, or removed its
-- TTL. Follows that, and returns when the task is now due (nil: paused, or the timer is gone, which
-- alone changes nothing).
local function follow_timer(id, record)
  local timer = read_timer(id, record)
  local due = record.state == 'pending' and tonumber(redis.call('ZSCORE', state_set('pending'), id))
  if timer == 'none' then
    if record.state == 'pending' then
      note(id, 'edit', due, nil)
      redis.call('HSET', record_key(id), 'left', math.max((due or now) - now, 0))
    end
    move(id, record, 'paused', now + CHECK_PAUSED_AFTER)
    return nil
  end
  if timer then
    if timer ~= due then
      local kind = kind_of_edit(id, due, timer)
      note(id, kind, due, timer)
      record.is_alive = kind == 'beat'
    end
    move(id, record, 'pending', timer)
  end
  return timer
end
