-- include names
-- include clock
-- include state_sets
-- include ledger
-- include rearm
-- gives APPLIED, KEPT, keep_ended, cancels_running, end_as_row, cancel_from_row, follow_row_end

-- Codes that relay returns for a row: the record was changed, or stays as it is.
local APPLIED, KEPT = 1, 2
local keep_ended = tonumber(ARGV[7]) -- ms
-- True if the listeners are to be notified that a running task was cancelled.
local cancels_running = false

-- Ends a task in the state of its row. The row is up to date, so it is not marked dirty.
local function end_as_row(id, record, state)
  record.ledger = nil
  redis.call('DEL', trigger_key(id, record))
  if state ~= 'failed' then redis.call('HDEL', record_key(id), 'error') end
  finish(id, record, state, keep_ended)
end

-- Cancels a task whose row was cancelled. A running one is not attempted again.
local function cancel_from_row(id, old)
  if old.state == 'running' then
    cancel_run(id, old, keep_ended)
    cancels_running = true
    return
  end
  redis.call('HSET', record_key(id), 'due', due_of(id, old))
  finish(id, old, 'cancelled', keep_ended)
  redis.call('DEL', trigger_key(id, old))
end

-- Ends a task whose row has ended in the same generation. A running attempt continues: the row decides when it
-- is settled.
local function follow_row_end(id, row, old)
  if old.state == 'running' or old.state == row.what then return KEPT end
  end_as_row(id, old, row.what)
  put_generation(id, old, row.generation, row.revision)
  return APPLIED
end
