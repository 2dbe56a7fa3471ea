-- include names
-- include clock
-- include state_sets
-- include format
-- include hooks
-- include records
-- include series_keys
-- unless plain
-- on on_start 40 start_tick
-- on on_park 40 end_tick_before
-- on on_move 40 note_tick_moved
-- on on_retry 40 is_last_attempt
-- on on_succeed 40 note_ticks_succeeded

-- What is done for a tick that starts, waits or ends.

-- A tick that does not run is cancelled, and kept for so many ms at most.
local KEPT_SKIPPED = 3600000
local MISSED = 'missed: the next tick was due'
-- The series and the time in a tick's id; the time at which the next one is due, in its field `tick`.
local SERIES_IN_ID = '^(.+)@%d+$'
local NEXT_IN_TICK = '^%d+ (%d+)$'

-- True if a due tick starts now. Otherwise it ends here:
--   it never began, and the next one is due: it was missed. A client that moved it there meant it.
--   its series lets no ticks overlap, and another one runs: it is skipped.
--   its series lets no ticks overlap, it began before, and the next one is due: its retries are over.
-- A tick whose series was removed is a task like any other. `taken` is what this script took before, and
-- may not have written yet.
--
-- The functions in it are made for ticks alone: one beside it would cost each claim.
local function begin_tick(id, record, due, taken, keep_failed)
  local series = series_key(string.match(id, SERIES_IN_ID) or '')
  local known = redis.pcall('HMGET', series, 'call', 'overlap', 'running')
  if known.err or not known[1] then return true end

  local function end_now(state, keep, reason)
    redis.call('HSET', record_key(id), 'due', due)
    finish(id, record, state, keep, 'error', reason)
    redis.call('DEL', trigger_key(id, record))
    return false
  end

  local function skip(count, reason)
    redis.pcall('HINCRBY', series, count, 1) -- another client may have written anything
    return end_now('cancelled', math.min(keep_failed, KEPT_SKIPPED), reason)
  end

  local function runs(other)
    for _, task in ipairs(taken) do
      if task[1] == other then return true end
    end
    return redis.pcall('HGET', record_key(other), 'state') == 'running'
  end

  local apart, other = known[2] ~= 'allow', known[3]
  -- Most are claimed for the first time, and have neither.
  local began = record.attempt and redis.call('HMGET', record_key(id), 'started', 'error') or {}
  local successor = tonumber(string.match(record.tick, NEXT_IN_TICK))
  local passed = successor and successor <= now
  if passed and not began[1] and due < successor then
    return skip('missed', MISSED)
  end
  if apart and passed and began[1] then
    return end_now('failed', keep_failed, (began[2] or 'it began')
      .. '\nnot attempted again: the next tick is due')
  end
  if apart and other and other ~= id and runs(other) then
    return skip('overlapped', 'skipped: ' .. other .. ' still ran')
  end
  local fields = {}
  if not began[1] then
    redis.call('HDEL', series, 'outcome', 'ended')
    fields = { 'last', id, 'began', now, 'late', math.max(now - due, 0) }
  end
  if apart then fields[#fields + 1], fields[#fields + 2] = 'running', id end
  if fields[1] then redis.call('HSET', series, unpack(fields)) end
  return true
end

local function start_tick(id, record, score, taken, keep_failed)
  return not record.tick or begin_tick(id, record, tonumber(score), taken, keep_failed)
end

-- Of the ticks of a series only the latest waits: the one before it was missed.
local function end_tick_before(id, record, keep_failed)
  if not record.tick then return end
  local series = string.match(id, '^(.+)@%d+$')
  local known = series and redis.pcall('HMGET', series_key(series), 'call', 'parked')
  if not known or known.err or not known[1] then return end
  local before = known[2] and known[2] ~= id and read(known[2], { 'started' })
  if before and before.state == 'waiting' and not before.started then
    redis.pcall('HINCRBY', series_key(series), 'missed', 1) -- another client may have written anything
    finish(known[2], before, 'cancelled', math.min(keep_failed, KEPT_SKIPPED), 'error', MISSED)
  end
  redis.call('HSET', series_key(series), 'parked', id)
end

-- Notes in its series how a tick ended, since the tick's own record is soon forgotten: when one last
-- succeeded, and what became of the latest that began.
local function note_end_of_tick(id, state)
  local series = string.match(id, '^(.+)@%d+$')
  local known = series and redis.pcall('HMGET', series_key(series), 'call', 'last')
  if not known or known.err or not known[1] then return end
  local fields = known[2] == id and { 'outcome', state, 'ended', now } or {}
  if state == 'succeeded' then fields[#fields + 1], fields[#fields + 2] = 'succeeded', now end
  if fields[1] then redis.call('HSET', series_key(series), unpack(fields)) end
end

local function note_tick_moved(id, _, _, state, _, fields)
  if fields and FINISHED[state] and string.find(id, '@', 1, true) then note_end_of_tick(id, state) end
end

local function note_ticks_succeeded(tasks)
  for _, task in ipairs(tasks) do
    if string.find(task[1], '@', 1, true) then note_end_of_tick(task[1], 'succeeded') end
  end
end

-- True if no attempt of a tick may start at that time: its series lets no ticks overlap, and the next one is due by
-- then.
local function is_last_attempt(id, at)
  if not string.find(id, '@', 1, true) then return false end
  local tick = redis.call('HGET', record_key(id), 'tick')
  local successor = tick and tonumber(string.match(tick, NEXT_IN_TICK))
  if not successor or at < successor then return false end
  local series = series_key(string.match(id, SERIES_IN_ID) or '')
  local known = redis.pcall('HMGET', series, 'call', 'overlap')
  return not known.err and known[1] and known[2] ~= 'allow'
end
