-- include names
-- include clock
-- include records
-- include state_sets
-- include history
-- include timer_edits
-- include new_tasks
-- include rearm
-- include hooks
-- gives decide, successor_of, func_in

-- The successor of a running task, if it has not ended: a signal is for that.
local function successor_of(record) return record.next and not record.next.ended and record.next end

-- The call with another function. The arguments stay. Another client may have written a call that has none.
local function with_function(call, func)
  local at = string.find(call, '?', 1, true)
  return func .. (at and string.sub(call, at) or '?')
end

-- The name of a function, unless another client wrote something else there: to run that would run neither function.
local function func_in(name) return string.match(name or '', '^[%w_/]+%.[%w_]+$') end

local function decide_next(id, record, signal, signalled)
  local task = record.next
  -- Any client may have set the timer that it shares with the running one.
  if trigger_key(id, task) == trigger_key(id, record) then redis.call('DEL', trigger_key(id, record)) end
  local lost, func = task.call, take_value(task.fields, 'on_signal')
  put_value(task.fields, 'lost', lost)
  put_value(task.fields, 'signal', signal)
  put_value(task.fields, 'signalled', signalled)
  task.call = with_function(lost, func)
  if task.due ~= WHILE_PAUSED then task.due = now end
  note_next(id, record, task)
end

-- The old key goes: its end would be that of a deadline that does not count any longer.
local function give_timer(id, record, new)
  local name = trigger_key(id, new)
  take_over(name)
  if record.state == 'paused' then
    redis.call('SET', name, 0)
    redis.call('HSET', record_key(id), 'left', 0)
  end
  redis.call('DEL', trigger_key(id, record))
end

local function decide_task(id, record, signal, signalled)
  if read_timer(id, record) then follow_timer(id, record) end
  local new = { call = with_function(record.call, record.on_signal), args = record.args, state = record.state,
    due = record.due }
  if record.state == 'paused' then note(id, 'signal') else note_move(id, record, 'signal', now) end
  for i = 1, #on_swap do on_swap[i](id, record, new) end
  give_timer(id, record, new)
  redis.call('HSET', record_key(id), 'call', new.call, 'lost', record.call, 'signal', signal, 'signalled', signalled)
  redis.call('HDEL', record_key(id), 'on_signal', 'key', 'unfit', 'unknown', 'error', 'waited', 'first')
  if new.state ~= 'paused' then wait_until(id, new, now) end
end

-- Decides a task that waits for a signal, or its successor, if it has one. The record needs the fields `due`, `left`,
-- `args`, `next` and `on_signal`.
local function decide(id, record, signal, signalled)
  local decide_it = successor_of(record) and decide_next or decide_task
  decide_it(id, record, signal, signalled)
end
