-- include names
-- include format
-- include clock
-- include records
-- include state_sets
-- include history
-- include drawn
-- include new_tasks
-- include rearm
-- include producer_changes
-- include hooks
-- gives MADE, read_new, make_plain, make_one

-- Makes a task as a caller asks for it: id, has_random_id, if_exists, call, due time, fields; see make.lua.
--
-- `max_wait` limits how long 'replace' and 'extend' can put a task off, in ms from the first call with
-- it since the task was made, or ran. The record's `first` is the time of that call.
--
-- `window`, for 'keep', also keeps a finished task whose latest run began less than so many ms ago.

local MADE = { created = MADE_CREATED, kept = 2, exists = 3, replaced = 4, extended = 5, differs = 6, no_group = 7,
  closed = 8, in_ledger = 9 }

-- As `read_request`, with the values that are not for the record; a name that is there twice has its last value.
local function read_new(at)
  local id, item, after = read_request(at)
  local fields = {}
  for i = 1, #item.fields, 2 do put_value(fields, item.fields[i], item.fields[i + 1]) end
  item.fields, item.args, item.key = fields, value_of(fields, 'args'), value_of(fields, 'key')
  item.max_wait = take_value(fields, 'max_wait')
  item.window = take_value(fields, 'window')
  return id, item, after
end

local function create_task(id, item, old)
  if old then
    redis.call('DEL', trigger_key(id, old))
    forget(id, old.state)
  end
  write(id, item, item.due, item.fields)
  return item.due, 'pending', item
end

-- Caps a due time by `max_wait` from the first such call, whose time goes into the record.
local function cap_put_off(item, old)
  if not item.max_wait then return end
  local first = math.max(now, (old and tonumber(old.started) or 0) + 1)
  if old and old.next then
    first = tonumber(value_of(old.next.fields, 'first')) or first
  elseif old then
    first = put_off_since(old.first, old.started) or first
  end
  item.due = math.min(item.due, first + item.max_wait)
  put_value(item.fields, 'first', first)
end

-- Writes the fields that `extend` changes besides the due time: the start of a limit, and a watched task's time to
-- live. If the task runs and has a successor, they are noted there.
local function note_fields(id, item, old, last)
  for _, name in ipairs({ 'first', 'ttl' }) do
    local value = value_of(item.fields, name)
    if value and not old.next then
      redis.call('HSET', record_key(id), name, value)
    elseif value then
      put_value(last.fields, name, value)
    end
  end
end

-- True if two tasks have the same arguments. Values in clear behind those that are sealed, or encoded, do not count:
-- they depend on the limits that were declared when it was made.
local function same_args(one, other)
  local function body(args) return args and (string.match(args, '^%l+:%S*') or args) end
  return one == other or body(one) == body(other)
end

-- True if the same function runs on a signal in both, or would have run.
local function waits_alike(last, item)
  local fields = last.fields
  local one = fields and (value_of(fields, 'on_signal') or value_of(fields, 'passed')) or last.on_signal or last.passed
  return (one or nil) == value_of(item.fields, 'on_signal')
end

-- The action for each `if_exists` if an unfinished task has the id. It returns a code, the new due time, the state,
-- and the task that then has the id.
local IF_EXISTS = {
  reject = function(id, _, old) return old.ledger and MADE.in_ledger or MADE.exists, due_of(id, old), old.state, old end,
  keep = function(id, _, old) return MADE.kept, due_of(id, old), old.state, old end,
  replace = function(id, item, old)
    cap_put_off(item, old)
    if old.state ~= 'running' then return MADE.replaced, create_task(id, item, old) end
    redis.call('DEL', trigger_key(id, old))
    note_next(id, old, { call = item.call, args = item.args, due = item.due, fields = item.fields })
    return MADE.replaced, item.due, 'running', item
  end,
  extend = function(id, item, old)
    local last = old.next or old
    if last.call ~= item.call or not same_args(last.args, item.args) or not waits_alike(last, item) then
      return old.ledger and MADE.in_ledger or MADE.differs, due_of(id, old), old.state, last
    end
    cap_put_off(item, old)
    note_fields(id, item, old, last)
    note_move(id, old, 'extend', item.due)
    if old.state == 'running' then
      note_rearm(id, old, item.due)
    else
      wait_until(id, old, item.due)
    end
    return MADE.extended, item.due, old.state, last
  end,
}

-- Answers a resend. The successor of a running task, and its due time, are only in the record.
local function answer_again(id, code, old)
  if code == MADE.created then return code, due_of(id, old), old.state, old end
  local last = old.next or old
  local due = old.next and last.due or tonumber(old.rearm) or due_of(id, old)
  return code, due, old.state, last
end

local function ran_within(window, old)
  return window and old.started and now < old.started + window
end

-- Makes a task without asking `on_make`. A resend has the nonce of its call; if the id was drawn for the call, that is
-- enough.
local function make_plain(id, item, nonce)
  if item.has_random_id then return make_drawn(id, item) end
  local old = read(id, { 'nonce', 'due', 'args', 'left', 'next', 'rearm', 'first',
    'started', 'on_signal', 'passed' })
  local before = answered(old, nonce)
  if before then return answer_again(id, before, old) end
  if old and old.ledger and (FINISHED[old.state] or item.if_exists == 'replace') then
    -- Its row outlives the record, and has no trace of this call.
    return item.if_exists == 'keep' and MADE.kept or MADE.in_ledger, due_of(id, old), old.state, old
  end
  if not old or (FINISHED[old.state] and not ran_within(item.window, old)) then
    cap_put_off(item)
    local due, state, task = create_task(id, item, old)
    remember(id, old, nonce, MADE.created)
    for i = 1, #on_made do on_made[i](id, item) end
    return MADE.created, due, state, task
  end
  local code, due, state, task = IF_EXISTS[item.if_exists](id, item, old)
  if code == MADE.replaced or code == MADE.extended then remember(id, old, nonce, code) end
  return code, due, state, task
end

-- Makes a task. If its id was not drawn for it, the first of `on_make` that answers makes or refuses it.
local function make_one(id, item, nonce)
  for i = 1, item.has_random_id and 0 or #on_make do
    local code, due, state, task = on_make[i](id, item, nonce, same_args)
    if code then return code, due, state, task end
  end
  return make_plain(id, item, nonce)
end
