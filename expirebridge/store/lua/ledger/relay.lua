-- flags: (none: refused whole when memory is full)
-- Carries rows of the ledger here: makes their tasks, cancels them, moves them; what ended there ends
-- here. It is one pass, all or nothing.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 the nonce that is to be found here ('': none), 3 the nonce of the ledger, 4 the
--          number of the pass that is to be the last one here, 5 the number of this pass, 6 lease in ms,
--          7 ms to keep what ends here, then for each row:
--          id, '<generation> <revision>', what ('waits', 'cancel', 'succeeded', 'failed', 'cancelled'),
--          words: 'moved' if its time is new, 'rebuilt' if this database may have lost it, call,
--          'in', 'at' or 'never' (it was paused), ms, n, then n names and values for the record
-- returns  1, or 0 if another pass or another ledger was here: then nothing was written; now; then for
--          each row: 1 done, 2 kept, 3 taken: a task that is not of the ledger has the id; and when it is
--          due in ms, -1 if that is not known
--
-- The record names the generation and the revision that it has followed. A row that names others wants
-- something, and that is done to whatever the record is now: see docs/reference/states.md. A row can be carried more
-- than once. One that does not know yet what its task did meanwhile is dirty: so it learns that.

-- include names
-- include clock
-- include features
-- include records
-- include state_sets
-- include history
-- include timer_edits
-- include doorbell
-- include ledger
-- include new_tasks
-- include rearm

local lease, keep = tonumber(ARGV[6]), tonumber(ARGV[7])
local DONE, KEPT, TAKEN = 1, 2, 3
local SERIES_KEPT = 7 * 86400000
local to_be_cancelled = false

local function next_row(at)
  local row = { ledger = ARGV[at + 1], what = ARGV[at + 2], call = ARGV[at + 4], when = ARGV[at + 5], fields = {} }
  for hint in string.gmatch(ARGV[at + 3], '%a+') do row[hint] = true end
  row.generation, row.revision = generation_of(row.ledger)
  local ms, count = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
  row.due = row.when == 'in' and now + ms or ms
  for i = at + 8, at + 7 + 2 * count, 2 do put_value(row.fields, ARGV[i], ARGV[i + 1]) end
  row.args = value_of(row.fields, 'args')
  put_value(row.fields, 'ledger', row.ledger)
  return ARGV[at], row, at + 8 + 2 * count
end

-- What ended according to its row ends here, too, and the row has nothing to learn.
local function bury(id, record, state)
  record.ledger = nil
  redis.call('DEL', trigger_key(id, record))
  if state ~= 'failed' then redis.call('HDEL', record_key(id), 'error') end
  finish(id, record, state, keep)
end

-- What a claim asks of the series of a tick: see tick_claims. The series itself is in the ledger.
local function note_series(id, row)
  local series = string.match(id, '^(.+)@%d+$')
  if not series or redis.call('ZSCORE', series_set(), series) then return end
  redis.call('HSET', series_key(series), 'call', row.call, 'overlap', value_of(row.fields, 'overlap') or 'skip')
  redis.call('PEXPIRE', series_key(series), math.max(row.due - now, 0) + SERIES_KEPT)
end

-- A listener may hold what this database lost while it ran: it gets a lease to end. What is watched may
-- have been alive.
local function spare(row)
  if not row.rebuilt or row.what ~= 'waits' then return end
  local ttl = tonumber(value_of(row.fields, 'ttl'))
  row.due = math.max(row.due, now + (ttl or row.due <= now and lease or 0))
end

local function create(id, row, old)
  spare(row)
  if row.what == 'waits' and value_of(row.fields, 'tick') then note_series(id, row) end
  if old then
    redis.call('DEL', trigger_key(id, old))
    forget(id, old.state)
  end
  if row.what == 'waits' and row.when ~= 'never' then
    write(id, row, row.due, row.fields)
    return DONE
  end
  local made = { call = row.call, state = 'pending', ledger = row.ledger }
  redis.call('HSET', record_key(id), 'call', row.call, 'made', math.floor(now / 1000), unpack(row.fields))
  if row.what == 'waits' then
    pause_new(id, made)
  elseif row.what == 'cancel' then
    finish(id, made, 'cancelled', keep)
  else
    bury(id, made, row.what)
  end
  return DONE
end

local function cancel(id, old)
  if old.state == 'running' then
    cancel_run(id, old, keep)
    to_be_cancelled = true
    return
  end
  redis.call('HSET', record_key(id), 'due', due_of(id, old))
  finish(id, old, 'cancelled', keep)
  redis.call('DEL', trigger_key(id, old))
end

-- Another life of the same id: it takes the place of one that waits or has ended, and follows one that
-- runs, also if it has ended before it began. So there is never a second run beside the first.
local function succeed(id, row, old)
  if old.state ~= 'running' then return create(id, row, old) end
  redis.call('DEL', trigger_key(id, old))
  local ended = FINISHED[row.what] and row.what or nil
  local due = row.when == 'never' and WHILE_PAUSED or row.due
  old.next = { call = row.call, args = row.args, due = due, fields = row.fields, ended = ended, keep = keep }
  if row.what == 'cancel' then
    cancel(id, old)
  else
    note_next(id, old, old.next)
  end
  return DONE
end

-- The time that a row gives a task that may have followed an older copy of it. A timer that differs
-- from its place was moved by a client, and not heard of: it counts. A task that a pass has spared
-- which did not end keeps that time: another pass carries it again.
local function restore_time(id, row, old)
  local timer = read_timer(id, old)
  local score = tonumber(redis.call('ZSCORE', state_set('pending'), id))
  if timer == 'none' or timer and timer ~= score then return end
  local known = row.due
  spare(row)
  if score > now and score >= known then row.due = math.min(row.due, score) end
  old.is_alive = true -- the row knows this time
  wait_until(id, old, row.due)
end

-- A new time counts for one that waits, runs or has ended.
local function follow_time(id, row, old)
  spare(row)
  if FINISHED[old.state] then start_anew(id, old) end
  note_move(id, old, 'reschedule', row.due)
  if old.state == 'running' then
    note_rearm(id, old, row.due)
  else
    wait_until(id, old, row.due)
  end
end

-- Pauses what the row knows as paused. While it runs, a timer without a TTL says so.
local function follow_pause(id, old, is_new)
  if FINISHED[old.state] then
    if not is_new then return end
    start_anew(id, old)
  end
  if old.state == 'running' and not is_new then return end
  redis.call('SET', trigger_key(id, old), 0)
  if old.state ~= 'running' then follow_timer(id, old) end
end

-- What this database may have lost of a task that it still knows: its time, or that it is paused. That the
-- row has another revision than the record means a new time.
local function restore(id, row, old, is_new)
  if row.when == 'never' then
    follow_pause(id, old, is_new)
  elseif row.when ~= 'at' then
    return
  elseif old.state == 'pending' then
    restore_time(id, row, old)
  elseif old.state == 'paused' or is_new then
    follow_time(id, row, old)
  elseif old.state == 'running' then
    redis.call('HSET', record_key(id), 'due', row.due) -- for its lapse: it may have ended, and wait again
  end
end

local function follow(id, row, old, is_new)
  if row.what == 'cancel' then
    if not FINISHED[old.state] then cancel(id, old) end
  elseif is_new and row.moved then
    follow_time(id, row, old)
  elseif row.rebuilt then
    restore(id, row, old, is_new)
  end
end

-- What the record follows from now on: the task itself, or the one that is to follow it after its run.
local function note_revision(id, old, generation, revision)
  if not old.next then return put_generation(id, old, generation, revision) end
  put_value(old.next.fields, 'ledger', string.format('%.0f %.0f', generation, revision))
  redis.call('HSET', record_key(id), 'next', cmsgpack.pack(old.next))
end

-- Whether the task of this id is of the ledger, or can be from now on.
local function belongs(id, row, old)
  if old.ledger then return true end
  if FINISHED[old.state] then return true end
  if old.next or old.call ~= row.call or old.args ~= row.args then return false end
  put_generation(id, old, row.generation, 0)
  mark_dirty(id)
  return true
end

-- The end that a row knows, of the life that is here. A run goes on, and its row is asked at its end.
local function follow_end(id, row, old)
  if old.state == 'running' or old.state == row.what then return KEPT end
  bury(id, old, row.what)
  put_generation(id, old, row.generation, row.revision)
  return DONE
end

local function carry(id, row)
  local old = read(id, { 'args', 'due', 'left', 'next', 'rearm', 'token', 'settled' })
  if not old then return create(id, row) end
  if not belongs(id, row, old) then return TAKEN end
  if not old.ledger then return create(id, row, old) end
  local last = old.next or old
  local generation, revision = generation_of(old.next and value_of(old.next.fields, 'ledger') or old.ledger)
  local is_new = revision ~= row.revision
  local began_anew = generation > row.generation -- here, and the row does not know it yet
  if began_anew then mark_dirty(id) end
  if began_anew and not is_new then return KEPT end
  local is_other = last.call ~= row.call or last.args ~= row.args
  if generation < row.generation or is_other then return succeed(id, row, old) end
  if FINISHED[row.what] then
    if is_new then note_revision(id, old, generation, row.revision) end
    return follow_end(id, row, old)
  end
  if is_new then note_revision(id, old, generation, row.revision) end
  if FINISHED[old.state] then mark_dirty(id) end
  follow(id, row, old, is_new)
  return is_new and DONE or KEPT
end

local function due_now(id)
  local record = read(id, { 'due', 'left', 'next', 'rearm' })
  return record and not FINISHED[record.state] and record.state ~= 'paused' and row_time_of(id, record) or -1
end

local nonce, number = read_binding()
if nonce ~= ARGV[2] or number ~= tonumber(ARGV[4]) then return { 0, now } end
note_feature('ledger')
local result = ring_after(function()
  local reply, at = { 1, now }, 8
  while at <= #ARGV do
    local id, row, after = next_row(at)
    reply[#reply + 1] = carry(id, row)
    reply[#reply + 1] = due_now(id)
    at = after
  end
  redis.call('HSET', ledger_key(), 'nonce', ARGV[3], 'number', ARGV[5])
  return reply
end)
if to_be_cancelled then tell_listeners('beat') end
return result
