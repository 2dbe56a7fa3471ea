-- include names
-- include records
-- include clock
-- include state_sets
-- include rearm
-- include producer_changes
-- gives cancelled_running, cancel_task

-- True once a running task was cancelled: the listeners are to be notified.
local cancelled_running = false

-- Cancels a task: one that waits at once; one that runs is not attempted again.
local function cancel_task(id, nonce, keep)
  local record, code = read_for_change(id, nonce, { 'nonce', 'due', 'left', 'next' })
  if not record then return code end
  if FINISHED[record.state] then return FINISHED_BEFORE end
  if record.state == 'running' then
    remember(id, record, nonce, RUNNING)
    cancel_run(id, record, keep)
    cancelled_running = true
    return RUNNING
  end
  remember(id, record, nonce, DONE)
  redis.call('HSET', record_key(id), 'due', due_of(id, record))
  finish(id, record, 'cancelled', keep)
  redis.call('DEL', trigger_key(id, record))
  return DONE
end
