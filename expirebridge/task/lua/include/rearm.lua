-- include names
-- include clock
-- include records
-- include state_sets
-- include history
-- include timer_edits
-- include new_tasks
-- include format
-- include hooks
-- gives start_anew, cancel_run, put_off_since, rearm, note_next, note_rearm

-- Starts a finished task anew, with all its attempts. The settlement that ended it may be sent again, so its token
-- is kept. Needs the fields `token` and `settled`.
local function start_anew(id, record)
  note_end(id, record.state)
  local kept
  for i = 1, #on_anew do kept = on_anew[i](id) or kept end
  redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
  if kept then redis.call('HSET', record_key(id), unpack(kept)) end
  local settled = record.token or record.settled
  if settled then redis.call('HSET', record_key(id), 'settled', settled) end
end

-- Prevents further attempts of a running task. If its successor has a row of its own in a ledger, that is noted as
-- cancelled, so that the row is updated.
local function cancel_run(id, record, keep)
  redis.call('DEL', trigger_key(id, record))
  redis.call('HSET', record_key(id), 'cancel', 1)
  redis.call('HDEL', record_key(id), 'rearm')
  if record.next and record.ledger then
    record.next.ended, record.next.keep = 'cancelled', keep
    redis.call('HSET', record_key(id), 'next', cmsgpack.pack(record.next))
  else
    redis.call('HDEL', record_key(id), 'next')
  end
end

-- The time of the first put-off with a limit, in ms; nil if there was none since the task ran.
local function put_off_since(first, started)
  first = tonumber(first)
  return first and first > (tonumber(started) or 0) and first or nil
end

-- Makes a successor run that had ended before it started.
local function begin_next(task)
  if not task.ended or is_erased(task) then return end
  task.ended = nil
  for i = 1, #on_next do on_next[i](task) end
end

-- Replaces a task that ran by its successor. If their keys have the same name, a client
-- may have set the timer since, and it may have ended unseen. The nonces of resends are kept.
local function become_next(id, record)
  local task = record.next
  if trigger_key(id, task) == trigger_key(id, record) then
    local timer = read_timer(id, record)
    local asked = type(timer) == 'number' and timer or tonumber(record.rearm or nil)
    if asked then
      begin_next(task)
      task.due = asked
    end
  end
  local nonce = redis.call('HGET', record_key(id), 'nonce')
  local ledger = value_of(task.fields, 'ledger')
  forget(id, record.state)
  if task.ended then
    redis.call('HSET', record_key(id), 'call', task.call, 'made', math.floor(now / 1000), unpack(task.fields))
    finish(id, { call = task.call, state = record.state, ledger = ledger }, task.ended, task.keep)
  else
    write(id, task, task.due, task.fields)
    if task.due == WHILE_PAUSED then pause_new(id, { call = task.call, key = task.key, state = 'pending' }) end
    for i = 1, #on_revise do on_revise[i](id, { ledger = ledger }) end
  end
  if nonce then redis.call('HSET', record_key(id), 'nonce', nonce) end
end

-- While the handler ran, a client may have asked for one more run: by setting the timer (it is live),
-- by rescheduling the task, or by replacing it (the record says so, even if that time has come). The
-- task is then pending until that time as if it had never run. Returns true in that case.
local function rearm(id, record)
  if record.next then
    become_next(id, record)
  else
    local timer = read_timer(id, record)
    if not timer and not record.rearm then return false end
    note_attempt(id, 'rearmed')
    for i = 1, #on_again do on_again[i](id, record) end
    for i = 1, #on_forget do on_forget[i](id, record) end
    local since = redis.call('HMGET', record_key(id), 'first', 'started')
    redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
    if put_off_since(since[1], since[2]) then redis.call('HSET', record_key(id), 'first', since[1]) end
    if timer then
      follow_timer(id, record)
    else
      wait_until(id, record, tonumber(record.rearm) or now)
    end
  end
  if record.token then redis.call('HSET', record_key(id), 'settled', record.token) end
  return true
end

-- Notes the successor of a running task. The timer is set at once if it has the same name:
-- any client can then put it off, or give it a TTL if it is to be paused. Another name would look like a foreign task's.
local function note_next(id, record, task)
  for i = 1, #on_write do on_write[i](task.fields) end
  redis.call('HSET', record_key(id), 'next', cmsgpack.pack(task))
  redis.call('HDEL', record_key(id), 'rearm', 'cancel')
  if task.ended or trigger_key(id, task) ~= trigger_key(id, record) then return end
  if task.due == WHILE_PAUSED then
    redis.call('SET', trigger_key(id, record), 0)
  else
    set_timer(id, record, task.due)
  end
end

-- Notes that a running task, or its successor, is to run at `due`.
local function note_rearm(id, record, due)
  if record.next then
    begin_next(record.next)
    record.next.due = due
    return note_next(id, record, record.next)
  end
  redis.call('HSET', record_key(id), 'rearm', due)
  redis.call('HDEL', record_key(id), 'cancel')
  set_timer(id, record, due)
end
