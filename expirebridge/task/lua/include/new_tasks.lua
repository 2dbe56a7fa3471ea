-- include names
-- include format
-- include records
-- include state_sets
-- include drawn
-- include hooks
-- gives take_over, write

-- A foreign task whose id was taken when its key was first seen may have the key that a new task needs.
-- It is removed then; if it runs, it only gives the key up.
local function take_over(name)
  local other = home .. redis.sha1hex(name)
  local record = read(other)
  if not record or record.key ~= name then return end
  if record.state == 'running' then
    redis.call('HDEL', record_key(other), 'key')
  else
    forget(other, record.state)
  end
end

-- Writes a new record, as `write_new`, with an id that was not drawn for it.
local function write(id, record, due, fields)
  for i = 1, #on_write do on_write[i](fields, id, due) end
  take_over(trigger_key(id, record))
  write_new(id, record, due, fields)
end
