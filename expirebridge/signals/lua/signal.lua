-- flags: (none: refused whole when memory is full)
-- Decides a task that waits for a signal: it runs its other function, now.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id, 4 digests of what the signal says, by each key, the first one's
--          first, with commas between them; '' if it is not sealed, 5 who sends it, or '', 6 what it says: JSON, or
--          sealed
-- returns  1 signalled: so is the same again, as long as the record is there; 3 running, 4 finished, 5 not found,
--          7 elsewhere, 10 another signal has decided, 11 its deadline has: an attempt has begun, 12 it waits for no
--          signal, 13 it is of a ledger, where its row decides
--
-- The first claim decides against the signal, not the clock: what waits for a slot, or on hold, can be signalled after its
-- deadline. One that was replaced while it runs has a successor: the signal is for that. A paused one stays paused.

-- include names
-- include clock
-- include history
-- include timer_edits
-- include state_sets
-- include new_tasks
-- include rearm
-- include producer_changes
-- include format
-- include hooks
-- include records
-- include ring

local SIGNALLED_BEFORE, BEGUN, NOT_AWAITED, OF_LEDGER = 10, 11, 12, 13
local nonce, id, digests, by, payload = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if digests == '' then digests = redis.sha1hex(payload) end

-- True if this very signal has decided: webhooks come again, hours later.
local function is_same(signalled)
  local known, sender = string.match(signalled, '^%d+ (%S+) (.*)$')
  return known and sender == by and string.find(',' .. digests .. ',', ',' .. known .. ',', 1, true)
end

-- The call with another function. The arguments stay. Another client may have written a call that has none.
local function with_function(call, func) return func .. (string.match(call, '%?.*$') or '?') end

-- The name of a function, unless another client wrote something else there: to run that would run neither function.
local function func_in(name) return string.match(name or '', '^[%w_/]+%.[%w_]+$') end

-- What the record gets.
local function signal_fields(lost)
  return { 'lost', lost, 'signal', payload, 'signalled', string.format('%.0f %s %s', now, string.match(digests, '^[^,]*'), by) }
end

local function signal_next(record)
  local task = record.next
  -- Any client may have set the timer that it shares with the running one.
  if trigger_key(id, task) == trigger_key(id, record) then redis.call('DEL', trigger_key(id, record)) end
  local lost, func = task.call, take_value(task.fields, 'on_signal')
  local fields = signal_fields(lost)
  for i = 1, #fields, 2 do put_value(task.fields, fields[i], fields[i + 1]) end
  task.call = with_function(lost, func)
  if task.due ~= WHILE_PAUSED then task.due = now end
  note_next(id, record, task)
end

-- The old key goes: its end would be that of a deadline that does not count any longer.
local function give_timer(record, new)
  local name = trigger_key(id, new)
  take_over(name)
  if record.state == 'paused' then
    redis.call('SET', name, 0)
    redis.call('HSET', record_key(id), 'left', 0)
  end
  redis.call('DEL', trigger_key(id, record))
end

local function signal_task(record)
  if read_timer(id, record) then follow_timer(id, record) end
  local new = { call = with_function(record.call, record.on_signal), args = record.args, state = record.state,
    due = record.due }
  if record.state == 'paused' then note(id, 'signal') else note_move(id, record, 'signal', now) end
  for i = 1, #on_swap do on_swap[i](id, record, new) end
  give_timer(record, new)
  redis.call('HSET', record_key(id), 'call', new.call, unpack(signal_fields(record.call)))
  redis.call('HDEL', record_key(id), 'on_signal', 'key', 'unfit', 'unknown', 'error', 'waited', 'first')
  if new.state ~= 'paused' then wait_until(id, new, now) end
end

local record, code = read_for_change(id, nonce, { 'nonce', 'due', 'left', 'args', 'next', 'on_signal', 'passed', 'signalled' })
if not record then return code end
if record.ledger then return OF_LEDGER end
if record.signalled and is_same(record.signalled) then return DONE end
local successor = record.next and not record.next.ended and record.next
local signalled, on_signal = record.signalled, func_in(record.on_signal)
if successor then
  signalled, on_signal = value_of(successor.fields, 'signalled'), func_in(value_of(successor.fields, 'on_signal'))
end
if signalled then return is_same(signalled) and DONE or SIGNALLED_BEFORE end
if successor and not on_signal or not on_signal and not record.passed then return NOT_AWAITED end
if not successor then
  if record.state == 'running' then return RUNNING end
  if FINISHED[record.state] then return FINISHED_BEFORE end
  if record.passed then return BEGUN end
end
return ring_after(function()
  if successor then signal_next(record) else signal_task(record) end
  remember(id, record, nonce, DONE)
  redis.pcall('HINCRBY', own_key('signals'), 'signalled', 1)
  return DONE
end)
