-- include ledger
-- include format
-- include hooks
-- include names
-- include records
-- unless plain
-- on on_move 10 mark_moved
-- on on_succeed 10 mark_succeeded
-- on on_again 10 raise_generation
-- on on_next 10 raise_next
-- on on_revise 10 mark_revised
-- on kept_longer 10 keep_unwritten

-- What happens to tasks of a ledger is to be written into their rows.

-- The row of a moved task is to be written. That it runs, or is alive, is not in its row.
local function mark_moved(id, record, before, state)
  if record.ledger and state ~= 'running' and not record.is_alive and not (state == 'paused' and before == state) then
    mark_dirty(id)
  end
end

local function mark_succeeded(tasks)
  for _, task in ipairs(tasks) do
    if task[3].ledger then mark_dirty(task[1]) end
  end
end

-- A task that starts anew does so here, and not in its row.
local function raise_generation(id, record)
  if not record.ledger then return end
  local generation, revision = generation_of(record.ledger)
  put_generation(id, record, generation + 1, revision)
  mark_dirty(id)
end

-- Of a successor that had ended, the row still has the end.
local function raise_next(task)
  local generation, revision = generation_of(value_of(task.fields, 'ledger'))
  put_value(task.fields, 'ledger', string.format('%.0f %.0f', generation + 1, revision))
end

local function mark_revised(id, record)
  if record.ledger then mark_dirty(id) end
end

-- Time in ms for which a finished task is kept longer if its row has not been written yet.
local DIRTY_LOOK = 60000

local function keep_unwritten(id, record)
  return record.ledger and redis.call('ZSCORE', state_set('dirty'), id) and DIRTY_LOOK
end
