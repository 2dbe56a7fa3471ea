-- include hooks
-- include lane_keys
-- include names
-- on stranded 20 is_out_of_line

-- True if a task that waits for a slot is in no queue.
local function is_out_of_line(id, record)
  if record.state ~= 'waiting' then return false end
  local queue = redis.pcall('HGET', record_key(id), 'queue')
  return not redis.pcall('ZSCORE', queue_key(type(queue) == 'string' and queue or ''), id)
end
