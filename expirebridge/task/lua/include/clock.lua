-- include names
-- include records
-- gives read_clock, now_us, now, LATEST, set_timer, end_of, read_timer, due_of

-- The server's clock, the only one used. `now` is in ms, `now_us` in microseconds.
local function read_clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local now_us = read_clock()
local now = math.floor(now_us / 1000)

-- The latest due time, in ms: Lua and a sorted set hold it exactly, and it is before WHILE_PAUSED. Another client may have
-- given a key a later end; or written a score, or a field, that is no whole number. The server would refuse that as the
-- end of a key, and the script fail midway.
local LATEST = 2 ^ 53 - 2

-- Sets the timer. The value is a small integer, since the server shares those: it costs no memory. A
-- time that has come needs no timer, and must not have one: a live key means "not yet".
local function set_timer(id, record, due)
  if due > now then
    redis.call('SET', trigger_key(id, record), 0, 'PXAT', math.floor(math.min(due, LATEST)))
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
  if redis.REDIS_VERSION_NUM then return math.min(redis.call('PEXPIRETIME', name), LATEST) end
  local left, before, after
  for _ = 1, 5 do
    before = read_clock()
    left = redis.call('PTTL', name)
    after = read_clock()
    if math.floor(before / 1000) == math.floor(after / 1000) then break end
  end
  if left == 0 then return now end -- it expired after this script began
  return left < 0 and left or math.min(math.floor(after / 1000) + left, LATEST)
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
  local due = record.due
  if record.state == 'paused' then
    due = now + (number_up_to(LATEST, record.left) or 0)
  elseif record.state == 'waiting' then
    due = redis.call('ZSCORE', state_set('waiting'), id)
  elseif record.state == 'pending' then
    local timer = read_timer(id, record)
    due = type(timer) == 'number' and timer or redis.call('ZSCORE', state_set('pending'), id)
  end
  return number_up_to(LATEST, due) or now
end
