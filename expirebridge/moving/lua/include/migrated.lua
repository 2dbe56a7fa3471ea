-- include names
-- gives MIGRATED, is_elsewhere

-- While a database is moved, a migrated task leaves a cancelled record behind, so that late events of its key do not
-- create it again. The record's `error` begins with these words, and names the other database.
local MIGRATED = 'carried over '

-- True if a task may be in the other database. Used only while there is a move.
local function is_elsewhere(id, record)
  if not record then return true end
  local reason = record.state == 'cancelled' and redis.pcall('HGET', record_key(id), 'error')
  return type(reason) == 'string' and string.sub(reason, 1, #MIGRATED) == MIGRATED
end
