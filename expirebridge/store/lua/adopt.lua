-- flags: allow-oom
-- Looks at trigger keys that were heard of, or found: makes records for those that another client
-- set, and follows edits of the timers of tasks that are known.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms to keep a failed task, 3 ms to keep a cancelled one, then for each key:
--          its name, id, call, what was heard ('expired', 'deleted', or 'live' for anything else),
--          why it is invalid
-- returns  for each key: code, id
--          codes: 1 adopted, 2 known, 3 invalid (kept as failed), 4 nothing there, 5 taken: another
--          task has the id under which it would be kept, so it is not run
--
-- What was heard is a hint: the key itself, and the record, decide. The expiry of a finished task's
-- key is the echo of its own run; that of a key which its id does not have may be the echo of a task
-- that had the id before, with other arguments. To believe it would run that task once more.

-- include names
-- include clock
-- include mark_format
-- include records
-- include timers
-- include places
-- include doorbell
-- include history
-- include timer_edits

local keep_failed, keep_cancelled = tonumber(ARGV[2]), tonumber(ARGV[3])
local ADOPTED, KNOWN, INVALID, NOTHING, TAKEN = 1, 2, 3, 4, 5
local before, soonest = earliest(), math.huge

local function create(id, record, due)
  redis.call('HSET', record_key(id), 'call', record.call, 'made', math.floor(now / 1000))
  if record.key then redis.call('HSET', record_key(id), 'key', record.key) end
  redis.call('ZADD', state_set('pending'), due, id)
end

-- A finished task whose timer was set again: a new generation, with the old one's policies.
local function revive(id, record, due)
  if record.key then redis.call('HSET', record_key(id), 'key', record.key) end
  note_end(id, record.state)
  note(id, 'edit', nil, due)
  redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
  redis.call('HSET', record_key(id), 'made', math.floor(now / 1000))
  move(id, record, 'pending', due)
end

-- When the key that was heard of makes its task due: nil if it says nothing.
local function due_by(id, record, hint)
  local timer = read_timer(id, record)
  if type(timer) == 'number' then return timer end
  if timer == nil and hint == 'expired' then return now end
  return nil
end

-- A waiting task's timer is gone although its time has not come: somebody deleted it, or gave it an
-- end that came before anybody looked.
local function follow_end(id, record, hint)
  -- Without a place nobody would ever look at it.
  local score = tonumber(redis.call('ZSCORE', state_set(record.state), id)) or math.huge
  if score <= now then return nil end -- it is due, or about to be looked at
  if hint == 'expired' then
    note(id, 'edit', record.state == 'pending' and score or nil, now)
    move(id, record, 'pending', now)
    return now
  end
  redis.call('HSET', record_key(id), 'due', due_of(id, record))
  finish(id, record, 'cancelled', keep_cancelled, 'error', 'its key was deleted')
  return nil
end

local function follow_known(id, record, hint)
  local timer = read_timer(id, record)
  local due
  if record.state == 'running' then
    -- A claim needs the timer to be gone, so this one was set since.
    if type(timer) == 'number' then redis.call('HSET', record_key(id), 'rearm', timer) end
  elseif timer == nil and hint ~= 'live' then
    due = follow_end(id, record, hint)
  else
    due = follow_timer(id, record)
  end
  soonest = math.min(soonest, due or math.huge)
end

local function look_at(name, id, call, hint, invalid)
  if not in_slot(name) then return NOTHING, id end
  local record = { call = call, state = 'pending' }
  if slot .. id .. ':?' .. call ~= name then record.key = name end
  local old = read(id, { 'args', 'left' })
  if not old or trigger_key(id, old) ~= name then
    -- Another call has the id, or had it when this key was first heard of.
    local other = redis.sha1hex(name)
    local known = read(other, { 'args', 'left' })
    if known and trigger_key(other, known) ~= name then
      if known.call == call and known.state == 'running' then return NOTHING, id end -- it gave it up
      if known.call == call and FINISHED[known.state] then
        known.key = name
      elseif old then -- somebody else's task, as the first one is
        return due_by(id, record, id == other and hint or 'live') and TAKEN or NOTHING, id
      else
        known = nil -- somebody else's task, but the key's own id is free
      end
    end
    if old and not known then hint = 'live' end
    if old or known then id, old, record.key = other, known, name end
  end
  if old and not FINISHED[old.state] then
    follow_known(id, old, hint)
    return KNOWN, id
  end
  if not old and redis.call('EXISTS', record_key(id)) == 1 then return NOTHING, id end
  local due = due_by(id, old or record, old and 'live' or hint)
  if not due then return old and KNOWN or NOTHING, id end
  -- `@` is valid for a task whose record holds the arguments.
  if old and invalid ~= '' and not old.args then return KNOWN, id end
  if old then
    revive(id, old, due)
  else
    create(id, record, due)
    if invalid ~= '' then
      redis.call('HSET', record_key(id), 'due', due)
      finish(id, record, 'failed', keep_failed, 'error', invalid)
      return INVALID, id
    end
  end
  soonest = math.min(soonest, due)
  return ADOPTED, id
end

mark_format()
local reply = {}
for at = 4, #ARGV, 5 do
  local code, id = look_at(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  reply[#reply + 1] = code
  reply[#reply + 1] = id
end
ring(soonest, before)
return reply
