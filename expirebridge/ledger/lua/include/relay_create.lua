-- include names
-- include hooks
-- include clock
-- include records
-- include ledger
-- include state_sets
-- include timer_edits
-- include new_tasks
-- include rearm
-- include relay_end
-- include series_keys
-- gives next_row, delay_rebuilt, create_from_row, replace_from_row, keep_pause

-- Reads the row whose arguments begin at this place; returns its id, the row, and the place behind it.
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

-- Time in ms that a tick's series is kept after the tick is due.
local SERIES_KEPT = 7 * 86400000

-- Writes the part of a tick's series that a claim reads: see ticks.lua. The series itself is in the ledger.
local function note_tick_series(id, row)
  local series = string.match(id, '^(.+)@%d+$')
  if not series or redis.call('ZSCORE', series_set(), series) then return end
  redis.call('HSET', series_key(series), 'call', row.call, 'overlap', value_of(row.fields, 'overlap') or 'skip')
  redis.call('PEXPIRE', series_key(series), math.max(row.due - now, 0) + SERIES_KEPT)
end

-- Delays a task that this database may have lost. A listener may still run it: it gets a lease to finish. A
-- watched task may have been kept alive: it gets its whole time to live.
local function delay_rebuilt(row)
  if not row.rebuilt or row.what ~= 'waits' then return end
  local ttl = tonumber(value_of(row.fields, 'ttl'))
  row.due = math.max(row.due, now + (ttl or row.due <= now and tonumber(ARGV[6]) or 0))
end

-- Renames what another client wrote over a record, if that is no hash.
local function set_broken_aside(id)
  local kind = redis.call('TYPE', record_key(id)).ok
  if kind ~= 'none' and kind ~= 'hash' then redis.call('RENAME', record_key(id), broken_key(id)) end
end

-- Writes a new record as the row says, in place of `old` if there is one.
local function create_from_row(id, row, old)
  delay_rebuilt(row)
  if not old then set_broken_aside(id) end
  if row.what == 'waits' and value_of(row.fields, 'tick') then note_tick_series(id, row) end
  if old then
    redis.call('DEL', trigger_key(id, old))
    forget(id, old.state)
  end
  if row.what == 'waits' and row.when ~= 'never' then
    write(id, row, row.due, row.fields)
    return APPLIED
  end
  for i = 1, #on_write do on_write[i](row.fields) end
  local made = { call = row.call, state = 'pending', ledger = row.ledger }
  redis.call('HSET', record_key(id), 'call', row.call, 'made', math.floor(now / 1000), unpack(row.fields))
  if row.what == 'waits' then
    pause_new(id, made)
  elseif row.what == 'cancel' then
    finish(id, made, 'cancelled', keep_ended)
  else
    end_as_row(id, made, row.what)
  end
  return APPLIED
end

-- Replaces a task by a later generation of the same id. If it runs, the new one is noted as its successor, even
-- if it has already ended: so two runs never overlap.
local function replace_from_row(id, row, old)
  if old.state ~= 'running' then return create_from_row(id, row, old) end
  redis.call('DEL', trigger_key(id, old))
  local ended = FINISHED[row.what] and row.what or nil
  local due = row.when == 'never' and WHILE_PAUSED or row.due
  old.next = { call = row.call, args = row.args, due = due, fields = row.fields, ended = ended,
    keep = keep_ended }
  if row.what == 'cancel' then
    cancel_from_row(id, old)
  else
    note_next(id, old, old.next)
  end
  return APPLIED
end

-- A signal does not resume a task, also if it was paused a moment ago, and its row has not heard of that.
local function keep_pause(id, row, old)
  if old.state == 'pending' and read_timer(id, old) then follow_timer(id, old) end
  if old.state == 'paused' or old.next and old.next.due == WHILE_PAUSED then row.when = 'never' end
end
