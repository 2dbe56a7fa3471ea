-- flags: (none: refused whole when memory is full)
-- Gives a task that no listener runs, or that has failed, other arguments.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id, 4 call and 5 `args` of the record as they were read, 6 and 7 the
--          new ones; `args` is '' if there is none; 4 is '' if there was nothing to edit
-- returns  1 done, 3 running, 4 succeeded or cancelled, 5 not found, 7 elsewhere, 9 the record has another call or
--          other arguments by now: nothing was changed
--
-- The timer's key is renamed: its end and its value stay. Of a timer that another client has set, and nobody has seen,
-- the event names the old key, so it is followed here.

-- include names
-- include clock
-- include history
-- include timer_edits
-- include new_tasks
-- include producer_changes
-- include format
-- include hooks
-- include ring

local OTHER_CALL = 9
local nonce, id = ARGV[2], ARGV[3]

-- Gives the timer the name that it has with the new arguments. One that is gone before its time is set again.
local function rename_timer(record, new)
  local name = trigger_key(id, new)
  if name == trigger_key(id, record) then return end
  take_over(name)
  if redis.call('EXISTS', trigger_key(id, record)) == 1 then
    redis.call('RENAME', trigger_key(id, record), name)
  elseif record.state == 'pending' then
    set_timer(id, new, due_of(id, record))
  else
    redis.call('DEL', name)
  end
end

local function write_arguments(new)
  redis.call('HSET', record_key(id), 'call', new.call)
  -- Listeners that refused the former arguments may take these.
  redis.call('HDEL', record_key(id), 'key', 'args', 'unfit')
  if new.args then redis.call('HSET', record_key(id), 'args', new.args) end
end

local record, code = read_for_change(id, nonce, { 'nonce', 'due', 'args' })
if not record then return code end
if record.state == 'running' then return RUNNING end
if record.state == 'succeeded' or record.state == 'cancelled' then return FINISHED_BEFORE end
-- The arguments of a ledger's task are in its row.
if record.ledger or ARGV[4] == '' or record.call ~= ARGV[4] or (record.args or '') ~= ARGV[5] then return OTHER_CALL end
return ring_after(function()
  if record.state ~= 'failed' and read_timer(id, record) then follow_timer(id, record) end
  local new = { call = ARGV[6], args = ARGV[7] ~= '' and ARGV[7] or nil, state = record.state, due = record.due }
  rename_timer(record, new)
  write_arguments(new)
  remember(id, record, nonce, DONE)
  note(id, 'edit_args', nil, nil)
  for i = 1, #on_edit do on_edit[i](id, record, new) end
  return DONE
end)
