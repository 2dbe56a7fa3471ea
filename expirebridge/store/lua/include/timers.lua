-- include names
-- include clock

-- Sets the timer. The value is a small integer because the server shares those: no bytes are spent
-- on it. A time that has come needs no timer, and must not have one: a live key means "not yet".
local function set_timer(id, record, due)
  if due > now then
    redis.call('SET', trigger_key(id, record), 0, 'PXAT', due)
  else
    redis.call('DEL', trigger_key(id, record))
  end
end

-- When a key ends, in ms: -1 if it has no end, -2 if there is no such key. Reading it makes the server
-- notice that it has expired, and tell every subscriber.
--
-- Redis 6.2 tells only what is left, by a clock that goes on while a script runs. It is asked again if a
-- millisecond ended meanwhile, but not for ever: to ask for a name of a million bytes takes more than
-- one. What is told is never too early, and late by no more than that.
local function end_of(name)
  if redis.REDIS_VERSION_NUM then return redis.call('PEXPIRETIME', name) end
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

-- What the timer says: the time at which it ends, in ms, 'none' if it has no end, or nil when it is
-- gone. In its last millisecond a timer still exists, and counts as gone.
local function read_timer(id, record)
  local ends = end_of(trigger_key(id, record))
  if ends == -1 then return 'none' end
  return ends > now and ends or nil
end

-- When a task is due, or was, as far as anybody can tell now. Needs the fields `due` and `left`.
local function due_of(id, record)
  if record.state == 'paused' then return now + (tonumber(record.left) or 0) end
  if record.state ~= 'pending' then return tonumber(record.due) or now end
  local timer = read_timer(id, record)
  if type(timer) == 'number' then return timer end
  return tonumber(redis.call('ZSCORE', state_set('pending'), id)) or now
end
