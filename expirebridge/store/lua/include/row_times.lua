-- include timers

-- When a task of a ledger is due as its row is to know it: of one that runs, when it is to run after
-- that, if it was moved or replaced meanwhile. Needs the fields `due`, `left`, `next` and `rearm`.
local function row_time_of(id, record)
  if record.state ~= 'running' then return due_of(id, record) end
  return record.next and record.next.due or tonumber(record.rearm or nil) or due_of(id, record)
end
