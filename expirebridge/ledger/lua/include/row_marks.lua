-- include ledger
-- include format
-- include hooks
-- unless plain
-- on on_move 10 mark_moved
-- on on_succeed 10 mark_succeeded

-- unless plain

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
