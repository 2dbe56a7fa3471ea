-- include names
-- include clock

-- The ledger: an SQL table with a row for each of its tasks. In the record of such a task the field
-- `ledger` holds '<generation> <revision>', those of the row that it has followed so far: the row's
-- revision counts what the application asked for, its generation how often the id began anew.
--
-- `dirty`, a sorted set, holds the ids whose rows are behind, with the time in microseconds at which
-- they changed last. The hash `ledger` holds the nonce by which the ledger and this database know each
-- other, and the number of the last pass that was seen here.
local function mark_dirty(id)
  redis.call('ZADD', state_set('dirty'), string.format('%.0f', now_us), id)
end

local function generation_of(ledger)
  local generation, revision = string.match(ledger or '', '^(%d+) (%d+)$')
  return tonumber(generation) or 0, tonumber(revision) or 0
end

local function put_generation(id, record, generation, revision)
  record.ledger = string.format('%.0f %.0f', generation, revision)
  redis.call('HSET', record_key(id), 'ledger', record.ledger)
end

-- Whether what a task was given was erased, in its row and here: see expirebridge/model/keys.py. It cannot run.
local ERASED = '?{"erased":true}'
local function is_erased(record) return string.sub(record.call, -#ERASED) == ERASED end

-- A finished task of a ledger begins anew here, not in its row.
local function raise_generation(id, record)
  if not record.ledger then return end
  local generation, revision = generation_of(record.ledger)
  put_generation(id, record, generation + 1, revision)
  mark_dirty(id)
end

-- What this database knows of its ledger: the nonce ('': none) and the number of the last pass.
local function read_binding()
  local known = redis.call('HMGET', ledger_key(), 'nonce', 'number')
  return known[1] or '', tonumber(known[2] or nil) or 0
end

-- When a task of a ledger is due as its row is to know it: of one that runs, when it is to run after
-- that, if it was moved or replaced meanwhile. Needs the fields `due`, `left`, `next` and `rearm`.
local function row_time_of(id, record)
  if record.state ~= 'running' then return due_of(id, record) end
  return record.next and record.next.due or tonumber(record.rearm or nil) or due_of(id, record)
end
