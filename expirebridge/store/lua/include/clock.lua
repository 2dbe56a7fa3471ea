-- include names

-- The server's clock, the only one used. `now` is in ms, `now_us` in microseconds.
local function read_clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local now_us = read_clock()
local now = math.floor(now_us / 1000)

-- Sets the timer. The value is a small integer, since the server shares those: it costs no memory. A
-- time that has come needs no timer, and must not have one: a live key means "not yet".
local function set_timer(id, record, due)
  if due > now then
    redis.call('SET', trigger_key(id, record), 0, 'PXAT', due)
  else
    redis.call('DEL', trigger_key(id, record))
  end
end

-- The expiry of a key, in ms: -1 if it has no TTL, -2 if it does not exist. Reading it makes the server
-- notice that it has expired, and notify every subscriber.
--
-- Redis 6.2 reports only the time left, by a clock that runs on during a script. It is asked again if a
-- millisecond ended meanwhile, but not for ever: to read a name of a million bytes takes longer than
-- that. The result is never too early, and late by no more than one call takes.
local function end_of(name)
  if redis.REDIS_VERSION_NUM then return redis.call('PEXPIRETIME', name) end
  local left, before, after
  for _ = 1, 5 do
    before = read_clock()
    left = redis.call('PTTL', name)
    after = read_clock()
    if math.floor(before / 1000) == math.floor(after / 1000) then break end
  end
  if left == 0 then return now end -- it expired after this script began
  return left < 0 and left or math.floor(after / 1000) + left
end

-- The expiry of a task's timer, in ms; 'none' if it has no TTL; nil if it is gone. In its last millisecond a timer
-- still exists, but counts as gone.
local function read_timer(id, record)
  local ends = end_of(trigger_key(id, record))
  if ends == -1 then return 'none' end
  return ends > now and ends or nil
end

-- The due time of a task, in ms, even if it has passed. Needs the fields `due` and `left`.
local function due_of(id, record)
  if record.state == 'paused' then return now + (tonumber(record.left) or 0) end
  if record.state == 'waiting' then
    return tonumber(redis.call('ZSCORE', state_set('waiting'), id)) or now
  end
  if record.state ~= 'pending' then return tonumber(record.due) or now end
  local timer = read_timer(id, record)
  if type(timer) == 'number' then return timer end
  return tonumber(redis.call('ZSCORE', state_set('pending'), id)) or now
end
