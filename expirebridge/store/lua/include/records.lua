-- include names
-- include clock
-- include format

-- A record holds few fields while its task is pending, to be small a million times over:
--   call     <func>?<args>, what follows `<id>:?` in the trigger key's name
--   made     when it was made, in seconds
-- and only where there is a need:
--   args     the arguments, when `call` ends in `@`
--   key      the trigger key's name, when it is not <id>:?<call> (some foreign keys)
--   nonce    `<code>:<nonce>` of the last three calls that made or changed it, by which a resend is
--            known; absent after a make with an id drawn at random
--   tags, retry, timeout, misfire   as the producer gave them
--   trace    where the producer stood in a trace: a W3C traceparent
--   ttl      of a watched task: by how many ms each beat puts it off
--   first    of a task that is put off with a limit: when that began, in ms
--   state    absent while pending
--   token    the nonce of the claim that runs it, or that ran it last
--   settled  the token of the last settled attempt, if the task has been pending since
--   due      when the present or last run was due, in ms (while pending, the score says it)
--   attempt, lapses, started, ended, result, error, unknown   what happened to it
--   rearm    when it shall run once more, if that was said while it ran
--   next     what it shall be after this run, if it was replaced while it ran (see timer_edits.lua)
--   cancel   1 if it was cancelled while it ran: no further attempt
--   history  what came before, see history.lua
--   left     while paused: the ms that were left until it was due
local STATES = { 'pending', 'paused', 'running', 'succeeded', 'failed', 'cancelled' }
local FINISHED = { succeeded = true, failed = true, cancelled = true }

-- A task has not run yet if these are absent: a new generation starts without them.
local RUN_FIELDS = { 'token', 'settled', 'due', 'attempt', 'lapses', 'started', 'ended', 'result',
  'error', 'unknown', 'rearm', 'next', 'cancel', 'first' }

-- Whether this can be an id: other clients can put anything into a state set, or behind the name of a
-- record. How long an id may be is checked where it is made.
local function is_id(id) return string.find(id, '^[%w_.:@-]+$') ~= nil end

-- What shall replace a task after its run, out of its record; nil for what another client put there.
local function read_next(packed)
  local well, task = pcall(cmsgpack.unpack, packed)
  well = well and type(task) == 'table' and type(task.call) == 'string'
    and type(task.due) == 'number' and task.due >= 0 and task.due < 2 ^ 53
    and type(task.fields) == 'table' and #task.fields % 2 == 0 and #task.fields <= 100
  for _, field in ipairs(well and task.fields or {}) do
    well = well and (type(field) == 'string' or type(field) == 'number')
  end
  return well and task or nil
end

-- The fields `names` of a record as a table; nil when there is no record of that id, or when what
-- another client put in its place is none.
local function read(id, names)
  local values = redis.pcall('HMGET', record_key(id), 'call', 'state', 'key', unpack(names or {}))
  if values.err or not values[1] then return nil end
  local record = { call = values[1], state = values[2] or 'pending', key = values[3] }
  for i, name in ipairs(names or {}) do record[name] = values[i + 3] or nil end
  if record.next then record.next = read_next(record.next) end
  return record
end

-- The value of one field in a list of names and values, as producers send them.
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return nil
end

local function take_value(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      table.remove(fields, i)
      return table.remove(fields, i)
    end
  end
  return nil
end

local function put_value(fields, name, value)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      fields[i + 1] = value
      return
    end
  end
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end

local function trigger_key(id, record)
  return record.key or (slot .. id .. ':?' .. record.call)
end

-- Moves an id from the set of its present state to that of another, and sets `fields`, names and
-- values, with it; they are for other states than `pending`. Lua does not roll back, so the destination
-- is written first and the source last: nothing is ever in no set.
local function move(id, record, state, look_at, fields)
  redis.call('ZADD', state_set(state), look_at, id)
  if state == 'pending' then
    redis.call('HDEL', record_key(id), 'state', 'left')
  else
    redis.call('HSET', record_key(id), 'state', state, unpack(fields or {}))
  end
  if record.state ~= state then
    redis.call('ZREM', state_set(record.state), id)
    record.state = state
  end
end

-- Sets the timer. The value is a small integer because the server shares those: no bytes are spent
-- on it. A time that has come needs no timer, and must not have one: a live key means "not yet".
local function set_timer(id, record, due)
  if due > now then
    redis.call('SET', trigger_key(id, record), 0, 'PXAT', due)
  else
    redis.call('DEL', trigger_key(id, record))
  end
end

-- The end of a key's life on Redis 6.2, which tells only what is left of it, by a clock that goes on
-- while a script runs. Asked again if a millisecond ended meanwhile, but not for ever: to ask for a name
-- of a million bytes takes more than one. What is told is never too early, and late by no more than that.
local function end_by_pttl(name)
  local left, before, after
  for _ = 1, 5 do
    before = read_clock()
    left = redis.call('PTTL', name)
    after = read_clock()
    if math.floor(before / 1000) == math.floor(after / 1000) then break end
  end
  if left == 0 then return now end -- it ended since this script began, some time ago or just now
  return left < 0 and left or math.floor(after / 1000) + left
end

-- When a key ends, in ms: -1 if it has no end, -2 if there is no such key. Reading it makes the server
-- notice that it has expired, and tell every subscriber.
local function end_of(name)
  return redis.REDIS_VERSION_NUM and redis.call('PEXPIRETIME', name) or end_by_pttl(name)
end

-- What the timer says: the time at which it ends, in ms, 'none' if it has no end, or nil when it is
-- gone. In its last millisecond a timer still exists, and counts as gone.
local function read_timer(id, record)
  local ends = end_of(trigger_key(id, record))
  if ends == -1 then return 'none' end
  return ends > now and ends or nil
end

-- Removes a task's record, and its tags and place with it. (Tag sets may have been overwritten.)
local function forget(id, state)
  local tags = redis.pcall('HGET', record_key(id), 'tags')
  if type(tags) == 'string' then
    for tag in string.gmatch(tags, '%S+') do redis.pcall('SREM', tag_set(tag), id) end
  end
  redis.call('DEL', record_key(id))
  redis.call('ZREM', state_set(state), id)
end

-- A foreign task, whose id was taken when its key was first heard of, may have the key that a new task
-- is about to have. It then makes way; if it runs, it only gives the key up.
local function take_over(name)
  local other = redis.sha1hex(name)
  local record = read(other)
  if not record or record.key ~= name then return end
  if record.state == 'running' then
    redis.call('HDEL', record_key(other), 'key')
  else
    forget(other, record.state)
  end
end

-- A tag set that was overwritten must not stop a task that is half made; any other refusal must.
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
  set_timer(id, record, due)
  for i = 1, #fields, 2 do
    if fields[i] == 'tags' then
      for tag in string.gmatch(fields[i + 1], '%S+') do add_tag(tag, id) end
    end
  end
end

-- When a task is due, or was, as far as anybody can tell now. Needs the fields `due` and `left`.
local function due_of(id, record)
  if record.state == 'paused' then return now + (tonumber(record.left) or 0) end
  if record.state ~= 'pending' then return tonumber(record.due) or now end
  local timer = read_timer(id, record)
  if type(timer) == 'number' then return timer end
  return tonumber(redis.call('ZSCORE', state_set('pending'), id)) or now
end

-- Ends a task for good. `keep` is how many ms it can be looked up.
local function finish(id, record, state, keep, field, text)
  local fields = { 'ended', now }
  if text and text ~= '' then
    fields[3], fields[4] = field, text
  end
  move(id, record, state, now + keep, fields)
end

-- The record of an id that stands in the set of `state` is gone, or another client put something else
-- in its place: what is there is kept as a failed task.
local function set_aside(id, state, keep)
  local kind = redis.call('TYPE', record_key(id)).ok
  if kind == 'none' or not is_id(id) then
    redis.call('ZREM', state_set(state), id)
    return
  end
  if kind ~= 'hash' then
    redis.call('RENAME', record_key(id), prefix .. ':broken:' .. id)
  end
  redis.call('HSET', record_key(id), 'call', '?')
  finish(id, { state = state }, 'failed', keep, 'error', 'the record held a ' .. kind .. ' without a call')
end

-- Whether an id stands in the set of `state` although its record names another. It is taken out; if it
-- then stands nowhere, it is kept as failed.
local function strayed(id, record, state, keep)
  if record.state == state then return false end
  redis.call('ZREM', state_set(state), id)
  if not redis.call('ZSCORE', state_set(record.state), id) then
    finish(id, { state = state }, 'failed', keep, 'error', 'its record named the state ' .. record.state)
  end
  return true
end
