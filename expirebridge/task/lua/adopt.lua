-- flags: allow-oom
-- Reconciles trigger keys from events or a scan with their records: makes records for keys that another client set,
-- and follows edits of the timers of tasks that have one.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms to keep a failed task, 3 ms to keep a cancelled one, then for each key:
--          its name, id, call, the event ('expired', 'deleted', 'expired in ledger' if its id
--          has a row in the ledger, or 'live' for the rest), why it is invalid
-- returns  for each key: code, id
--          codes: 1 adopted, 2 known, 3 invalid (kept as failed), 4 nothing there, 5 taken: another
--          task has the id under which it would be kept, so it is not run
--
-- The event is only a hint: the key itself and the record decide. The expiry of a finished task's key comes from its
-- own run. The expiry of a key that is not its id's present key may come from an earlier task with that id and other
-- arguments: adopting it would run that task again. The expiry of a key whose task is in the ledger makes no record:
-- if there is none here, the relay creates it from the row.

-- include names
-- include format
-- include clock
-- include features
-- include records
-- include state_sets
-- include history
-- include timer_edits
-- include ring
-- include hooks

local keep_failed, keep_cancelled = tonumber(ARGV[2]), tonumber(ARGV[3])
local ADOPTED, KNOWN, INVALID, NOTHING, TAKEN = 1, 2, 3, 4, 5
local FIELDS = { 'args', 'left' }

-- The due time of a key without a record: nil if it is unknown.
local function due_by(name, hint)
  local timer = read_timer(nil, { key = name })
  if type(timer) == 'number' then return timer end
  if timer == nil and hint == 'expired' then return now end
  return nil
end

local function adopt(name, id, call, hint, invalid)
  if redis.call('EXISTS', record_key(id)) == 1 then return NOTHING end -- it is not a record
  local record = { call = call, state = 'pending' }
  if trigger_key(id, record) ~= name then record.key = name end
  local due = due_by(name, hint)
  if not due then return NOTHING end
  redis.call('HSET', record_key(id), 'call', call, 'made', math.floor(now / 1000))
  if record.key then redis.call('HSET', record_key(id), 'key', name) end
  if invalid ~= '' then
    redis.call('HSET', record_key(id), 'due', due)
    finish(id, record, 'failed', keep_failed, 'error', invalid)
    return INVALID
  end
  for i = 1, #on_new do on_new[i](id, record, due, NONE) end
  redis.call('ZADD', state_set('pending'), due, id)
  soonest = math.min(soonest, due)
  return ADOPTED
end

-- A finished task whose timer was set again: a new generation, with the old one's policies.
local function revive(id, record, invalid)
  local due = read_timer(id, record)
  if type(due) ~= 'number' then return KNOWN end
  -- `@` is valid for a task whose record holds the arguments.
  if invalid ~= '' and not record.args then return KNOWN end
  if record.key then redis.call('HSET', record_key(id), 'key', record.key) end
  note_end(id, record.state)
  note(id, 'edit', nil, due)
  redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
  redis.call('HSET', record_key(id), 'made', math.floor(now / 1000))
  for i = 1, #on_again do on_again[i](id, record) end
  move(id, record, 'pending', due)
  return ADOPTED
end

-- A waiting task's timer is gone before its time: a client deleted it, or gave it an earlier end,
-- whose expiry was missed.
local function follow_end(id, record, hint)
  -- Without a score it would never be claimed.
  local score = tonumber(redis.call('ZSCORE', state_set(record.state), id)) or math.huge
  -- It is due, or about to be looked at; or it was due, and is pending until its rate allows a start.
  if score <= now then return end
  for i = 1, #keyless do
    if keyless[i](id) then return end
  end
  if hint ~= 'deleted' then
    note(id, 'edit', record.state == 'pending' and score or nil, now)
    move(id, record, 'pending', now)
    return
  end
  redis.call('HSET', record_key(id), 'due', due_of(id, record))
  finish(id, record, 'cancelled', keep_cancelled, 'error', 'its key was deleted')
end

local function follow(id, record, hint)
  local timer = read_timer(id, record)
  if record.state == 'running' then
    -- A claim requires the timer to be gone: this one was set later.
    if type(timer) == 'number' then redis.call('HSET', record_key(id), 'rearm', timer) end
  elseif timer == nil and hint ~= 'live' then
    follow_end(id, record, hint)
  else
    follow_timer(id, record)
  end
end

local function examine_known(id, record, hint, invalid)
  if FINISHED[record.state] then return revive(id, record, invalid) end
  follow(id, record, hint)
  return KNOWN
end

-- A key's task has the id in its name; or an id made from the whole name, if another task has that id,
-- or had it when the key was first seen.
local function examine(name, id, call, hint, invalid)
  if not has_hash_tag(name) then return NOTHING, id end
  local named = read(id, FIELDS)
  if named and trigger_key(id, named) == name then
    return examine_known(id, named, hint, invalid), id
  end
  for i = 1, named and #on_stray or 0 do
    if on_stray[i](id, name) then return KNOWN, id end
  end
  local own_id = home .. redis.sha1hex(name)
  local own = read(own_id, FIELDS)
  if own and trigger_key(own_id, own) == name then
    return examine_known(own_id, own, hint, invalid), own_id
  end
  if own and own.call == call then -- it gave the key up while it ran
    if own.state == 'running' then return NOTHING, id end
    if FINISHED[own.state] then
      own.key = name
      return revive(own_id, own, invalid), own_id
    end
  end
  if not named then return adopt(name, id, call, hint, invalid), id end
  -- The expiry of a key whose id is another's is ignored: it may come from an earlier task with that id.
  if not own then return adopt(name, own_id, call, 'live', invalid), own_id end
  return due_by(name, id == own_id and hint or 'live') and TAKEN or NOTHING, id
end

return ring_after(function()
  mark_format()
  local reply = {}
  for at = 4, #ARGV, 5 do
    local code, id = examine(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
    reply[#reply + 1] = code
    reply[#reply + 1] = id
  end
  return reply
end)
