-- include hooks
-- include format
-- include names
-- include records
-- include urgent_index
-- when urgent
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
  if not (fields[1] and value_of(fields, 'urgent')) then
    if not is_marked(record.call) then return end
    redis.call('HSET', record_key(id), 'urgent', 1)
  end
  change_index('ZADD', string.format('%.0f', due), id)
end
