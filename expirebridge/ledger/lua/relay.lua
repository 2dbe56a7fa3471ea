-- flags: (none: refused whole when memory is full)
-- Applies a batch of ledger rows, or a part of one, all or nothing: creates their tasks, cancels them, moves them,
-- ends them.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 the nonce that this database must be bound to ('': none), 3 the nonce of the ledger,
--          4 the number that the last batch here must have, after the first part its own, 5 the number of this
--          batch, 6 lease in ms, 7 ms to keep a task that ends here, 8 '<after> <before>' if this database lost rows
--          with a stamp between these numbers, some of which could not be marked yet, or '', then for each row:
--          id, '<generation> <revision>', what ('waits', 'cancel', 'succeeded', 'failed', 'cancelled'),
--          words: 'moved' if its time is new, 'signalled' if a signal made it so, 'rebuilt' if this database may have
--          lost it, call,
--          'in', 'at' or 'never' (paused), ms, n, then n names and values for the record
-- returns  1, or 0 if another batch or another ledger was here: then nothing was written; now; then for
--          each row: 1 applied, 2 kept, 3 taken: a task outside the ledger has the id; and when it is due
--          in ms, -1 if that is not known
--
-- A record holds the generation and the revision of its row that were applied last. A row with others is applied
-- to the record's present state: see docs/reference/states.md. A row can be relayed more than once. If its task
-- changed meanwhile, the row is marked dirty, so that the change is written back to it. What send_early.lua made is no
-- longer early.
--
-- relay_create, relay_end and relay_move each hold one part of this; `apply_row` decides which applies.

-- include names
-- include clock
-- include features
-- include ledger

local nonce, number = read_binding()
if nonce ~= ARGV[2] or number ~= tonumber(ARGV[4]) then return { 0, now } end
note_feature('ledger')

-- include records
-- include ring
-- include relay_end
-- include relay_create
-- include relay_move

local TAKEN = 3

-- Notes the applied revision: in the task itself, or in its successor if it has one.
local function note_revision(id, old, generation, revision)
  if not old.next then return put_generation(id, old, generation, revision) end
  put_value(old.next.fields, 'ledger', string.format('%.0f %.0f', generation, revision))
  redis.call('HSET', record_key(id), 'next', cmsgpack.pack(old.next))
end

-- True if the row may replace or change the task: it is of the ledger, has ended, or is the row's own task,
-- which then belongs to the ledger.
local function belongs_to_ledger(id, row, old)
  if old.ledger then return true end
  if FINISHED[old.state] then return true end
  if old.next or old.call ~= row.call or old.args ~= row.args then return false end
  put_generation(id, old, row.generation, 0)
  mark_dirty(id)
  return true
end

-- Applies a row to the task of its id, and returns a code.
local function apply_row(id, row)
  local old = read(id, { 'args', 'due', 'left', 'next', 'rearm', 'token', 'settled', 'early' })
  if not old then return create_from_row(id, row) end
  if old.early then redis.call('HDEL', record_key(id), 'early') end
  if not belongs_to_ledger(id, row, old) then return TAKEN end
  if not old.ledger then return create_from_row(id, row, old) end
  local last = old.next or old
  local generation, revision = generation_of(old.next and value_of(old.next.fields, 'ledger') or old.ledger)
  local is_new = revision ~= row.revision
  local began_anew = generation > row.generation -- here; not written back yet
  if began_anew then mark_dirty(id) end
  if began_anew and not is_new then return KEPT end
  local is_other = last.call ~= row.call or last.args ~= row.args
  if is_new and row.signalled then keep_pause(id, row, old) end
  if generation < row.generation or is_other then return replace_from_row(id, row, old) end
  if is_new then note_revision(id, old, generation, row.revision) end
  if FINISHED[row.what] then return follow_row_end(id, row, old) end
  if FINISHED[old.state] then mark_dirty(id) end
  follow_row(id, row, old, is_new)
  return is_new and APPLIED or KEPT
end

-- The due time to write into the row; -1 if the task has none.
local function due_of_row(id)
  local record = read(id, { 'due', 'left', 'next', 'rearm' })
  return record and not FINISHED[record.state] and record.state ~= 'paused' and row_time_of(id, record) or -1
end

local result = ring_after(function()
  local reply, at = { 1, now }, 9
  while at <= #ARGV do
    local id, row, after = next_row(at)
    reply[#reply + 1] = apply_row(id, row)
    reply[#reply + 1] = due_of_row(id)
    at = after
  end
  redis.call('HSET', ledger_key(), 'nonce', ARGV[3], 'number', ARGV[5], 'unmarked', ARGV[8])
  return reply
end)
if cancels_running then notify_listeners('beat') end
return result
