-- include names
-- include records
-- include history

-- A finished task begins anew, with all its attempts. The settlement that ended it may be sent again: its
-- token is kept. Needs the fields `token` and `settled`.
local function start_anew(id, record)
  note_end(id, record.state)
  redis.call('HDEL', record_key(id), unpack(RUN_FIELDS))
  local settled = record.token or record.settled
  if settled then redis.call('HSET', record_key(id), 'settled', settled) end
end
