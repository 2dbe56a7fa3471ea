-- include records
-- include resends
-- include changes

-- Answers for each id from ARGV[first] on what became of it. Only of a task that waits `change` decides,
-- and only the first time that this call comes.
local function change_waiting(first, nonce, fields, change)
  local function answer(id)
    local record = read(id, fields)
    if not record then return NOT_FOUND end
    local done_before = answered(record, nonce)
    if done_before then return done_before end
    if FINISHED[record.state] then return FINISHED_BEFORE end
    if record.state == 'running' then return RUNNING end
    return change(id, record)
  end

  local reply = {}
  for at = first, #ARGV do reply[#reply + 1] = answer(ARGV[at]) end
  return reply
end
