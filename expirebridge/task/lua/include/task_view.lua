-- include names
-- include clock
-- gives view

-- A task for a reader: id, trigger key, state, due in ms, name and value of each field. A waiting
-- task's timer is read, since it may have been put off after the score was written.
local function view(id, state, score)
  local fields = redis.pcall('HGETALL', record_key(id))
  if fields.err then return nil end
  local record = { state = state }
  for i = 1, #fields, 2 do record[fields[i]] = fields[i + 1] end
  if not record.call then return nil end
  local due = tonumber(record.due) or now + (tonumber(record.left) or 0)
  if state == 'pending' then
    local timer = read_timer(id, record)
    due = type(timer) == 'number' and timer or score or now
  end
  return { id, trigger_key(id, record), state, due, fields }
end
