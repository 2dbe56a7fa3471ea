-- flags: allow-oom
-- Looks at trigger keys that were heard of, or found: makes records for those that another client
-- set, and follows edits of the timers of tasks that are known.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms to keep a failed task, then for each key:
--          its name, id, call, 'expired' if its expiry was heard (else 'live'), why it is invalid
-- returns  for each key: code, id
--          codes: 1 adopted, 2 known, 3 invalid (kept as failed), 4 nothing there
--
-- What was heard is a hint: the key itself, and the record, decide. The expiry of a finished task's
-- key is the echo of its own run.

-- include names
-- include clock
-- include format
-- include mark_format
-- include records
-- include timer_edits
-- include doorbell

local keep_failed = tonumber(ARGV[2])
local ADOPTED, KNOWN, INVALID, NOTHING = 1, 2, 3, 4
local before, soonest = earliest(), math.huge

local function create(id, record, due, error)
  local fields = { 'call', record.call, 'made', math.floor(now / 1000) }
  if record.key then
    fields[#fields + 1] = 'key'
    fields[#fields + 1] = record.key
  end
  redis.call('HSET', record_key(id), unpack(fields))
  if error then
    finish(id, record, 'failed', keep_failed, 'error', error)
  else
    redis.call('ZADD', state_set('pending'), due, id)
    soonest = math.min(soonest, due)
  end
end

-- When the key that was heard of makes its task due: nil if it says nothing.
local function due_of(id, record, hint)
  local timer = read_timer(id, record)
  if type(timer) == 'number' then return timer end
  if timer == nil and hint == 'expired' then return now end
  return nil
end

local function follow_known(id, record)
  if record.state == 'running' then return end -- its settling reads the timer
  local due = follow_timer(id, record)
  if due then soonest = math.min(soonest, due) end
end

local function adopt(name, id, call, hint, invalid)
  local record = { call = call, state = 'pending' }
  if slot .. id .. ':?' .. call ~= name then record.key = name end
  local old = read(id)
  if old and trigger_key(id, old) ~= name then
    id = redis.sha1hex(name)
    record.key = name
    old = read(id)
  end
  if old and not FINISHED[old.state] then
    follow_known(id, old)
    return KNOWN, id
  end
  if invalid ~= '' then
    if not old and due_of(id, record, hint) then
      create(id, record, nil, invalid)
      return INVALID, id
    end
    return old and KNOWN or NOTHING, id
  end
  local due = due_of(id, record, old and 'live' or hint)
  if not due then return old and KNOWN or NOTHING, id end
  if old then forget(id, old.state) end
  create(id, record, due)
  return ADOPTED, id
end

mark_format()
local reply = {}
for at = 3, #ARGV, 5 do
  local code, id = adopt(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  reply[#reply + 1] = code
  reply[#reply + 1] = id
end
ring(soonest, before)
return reply
