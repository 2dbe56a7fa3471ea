-- include names
-- include format
-- include clock
-- include records
-- include state_sets

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

-- An overwritten tag set must not stop a task that is half made; any other error must.
local function add_tag(tag, id)
  local told = redis.pcall('SADD', tag_set(tag), id)
  if type(told) == 'table' and not string.find(told.err, 'WRONGTYPE', 1, true) then
    redis.call('SADD', tag_set(tag), id)
  end
end

-- Writes a new record, with its tags, place in `pending` and timer. `fields` are names and values.
local function write(id, record, due, fields)
  if not record.drawn then take_over(trigger_key(id, record)) end
  redis.call('HSET', record_key(id), 'call', record.call, 'made', math.floor(now / 1000),
    unpack(fields))
  redis.call('ZADD', state_set('pending'), due, id)
  soonest = math.min(soonest, due)
  set_timer(id, record, due)
  for i = 1, #fields, 2 do
    if fields[i] == 'tags' then
      for tag in string.gmatch(fields[i + 1], '%S+') do add_tag(tag, id) end
    end
  end
end
