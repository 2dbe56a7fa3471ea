-- flags: (none: refused whole when memory is full)
-- Puts tasks off, each by `ms` from its due time.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 ms, then ids
-- returns  for each id: 1 done, 3 running, 4 finished, 5 not found, 7 elsewhere
--
-- A paused task stays paused, with that much more time left.

-- include names
-- include clock
-- include history
-- include timer_edits
-- include producer_changes
-- include ring
-- include state_sets

local nonce, ms = ARGV[2], tonumber(ARGV[3])

local function put_off(id, record)
  remember(id, record, nonce, DONE)
  local timer = read_timer(id, record)
  if timer == 'none' then
    follow_timer(id, record)
    note(id, 'put_off', nil, nil)
    local left = tonumber(redis.call('HGET', record_key(id), 'left')) or 0
    redis.call('HSET', record_key(id), 'left', left + ms)
    return DONE
  end
  -- If a paused task's timer is gone, a client gave it an expiry, which was missed: it is due.
  local due = (timer or record.state == 'paused' and now or due_of(id, record)) + ms
  note(id, 'put_off', due - ms, due)
  wait_until(id, record, due)
  return DONE
end

return ring_after(function() return change_waiting(4, nonce, { 'nonce', 'due' }, put_off) end)
