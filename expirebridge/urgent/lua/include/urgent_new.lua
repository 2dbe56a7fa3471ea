-- include features
-- include format
-- include hooks
-- include names
-- include records
-- include urgent_index
-- on on_new 70 place_urgent

-- A new task is urgent if its producer says so, or if a listener has declared that its function is. Its record says it
-- from then on.

local marked = {}

local function is_marked(call)
  local func = string.match(call, '^[^?]*')
  if marked[func] == nil then marked[func] = type(redis.pcall('HGET', marks_key(), func)) == 'string' end
  return marked[func]
end

local function place_urgent(id, record, due, fields)
  local is_said = fields[1] and value_of(fields, 'urgent')
  if not is_said and not (uses.urgent and is_marked(record.call)) then return end
  note_feature('urgent')
  if not is_said then redis.call('HSET', record_key(id), 'urgent', 1) end
  change_index('ZADD', string.format('%.0f', due), id)
end
