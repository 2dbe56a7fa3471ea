-- include names
-- include clock
-- gives ledger_key, mark_dirty, generation_of, put_generation, read_binding, read_unmarked, row_time_of

-- The ledger: an SQL table with a row for each of its tasks. In the record of such a task the field
-- `ledger` holds '<generation> <revision>' of the row as it was applied last: the revision counts the changes that the
-- application made, the generation how often the id started anew.
--
-- `dirty`, a sorted set, holds the ids whose rows must be updated, with the time in microseconds of their last
-- change. The hash `ledger` holds the nonce that pairs the ledger with this database, the number of the last
-- batch that was relayed here, the horizon: for how many ms ahead rows are relayed, if not all are; and `unmarked`: see
-- relay.lua.
local function ledger_key() return own_key('ledger') end

local function mark_dirty(id)
  redis.call('ZADD', state_set('dirty'), string.format('%.0f', now_us), id)
end

local function generation_of(ledger)
  local generation, revision = string.match(ledger or '', '^(%d+) (%d+)$')
  generation, revision = tonumber(generation) or 0, tonumber(revision) or 0
  if generation >= 2 ^ 53 or revision >= 2 ^ 31 then return 0, 0 end -- no row has such a version
  return generation, revision
end

local function put_generation(id, record, generation, revision)
  record.ledger = string.format('%.0f %.0f', generation, revision)
  redis.call('HSET', record_key(id), 'ledger', record.ledger)
end

-- The nonce of the ledger that this database is bound to ('': none), and the number of the last batch.
local function read_binding()
  local known = redis.call('HMGET', ledger_key(), 'nonce', 'number')
  return known[1] or '', tonumber(known[2] or nil) or 0
end

-- What this database lost, as far as its rows are not marked: '<after> <before>', or ''.
local function read_unmarked()
  return string.match(redis.call('HGET', ledger_key(), 'unmarked') or '', '^%d+ %d+$') or ''
end

-- The due time of a task for its row. If it runs, and was moved or replaced meanwhile, the time of the run after
-- that. Needs the fields `due`, `left`, `next` and `rearm`.
local function row_time_of(id, record)
  if record.state ~= 'running' then return due_of(id, record) end
  return record.next and record.next.due or tonumber(record.rearm or nil) or due_of(id, record)
end
