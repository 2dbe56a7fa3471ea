-- flags: (none: refused whole when memory is full)
-- Pauses tasks that wait: their timers lose their TTL, and the remaining time is kept.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, then ids
-- returns  for each id: 1 done, 3 running, 4 finished, 5 not found, 7 elsewhere

-- include names
-- include clock
-- include state_sets
-- include history
-- include timer_edits
-- include producer_changes
-- include ring

local nonce = ARGV[2]

local function pause(id, record)
  if record.state ~= 'paused' then
    remember(id, record, nonce, DONE)
    note_move(id, record, 'pause', nil)
    redis.call('HSET', record_key(id), 'left', math.max(due_of(id, record) - now, 0))
    redis.call('SET', trigger_key(id, record), 0)
    move(id, record, 'paused', now + CHECK_PAUSED_AFTER)
  end
  return DONE
end

return ring_after(function() return change_waiting(3, nonce, { 'nonce', 'due' }, pause) end)
