-- include names

-- While a database is moved, a task leaves a finished record behind when it is carried over: what is
-- still heard of its key then does not make it anew. `error` says where it went, with these words.
local MIGRATED = 'carried over '
-- It stands in `cancelled` by the time at which it is deleted less this, far below all others: so it is
-- not counted as cancelled.
local MIGRATED_OFFSET = 2 ^ 43

-- Whether a task may be in the other database. Only asked while there is a move.
local function is_elsewhere(id, record)
  if not record then return true end
  local reason = record.state == 'cancelled' and redis.pcall('HGET', record_key(id), 'error')
  return type(reason) == 'string' and string.sub(reason, 1, #MIGRATED) == MIGRATED
end
