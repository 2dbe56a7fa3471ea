-- include names

-- Lets no further attempt of a running task follow. What was to follow it has a row of its own in a ledger,
-- which must learn how it ended.
local function cancel_run(id, record, keep)
  redis.call('DEL', trigger_key(id, record))
  redis.call('HSET', record_key(id), 'cancel', 1)
  redis.call('HDEL', record_key(id), 'rearm')
  if record.next and record.ledger then
    record.next.ended, record.next.keep = 'cancelled', keep
    redis.call('HSET', record_key(id), 'next', cmsgpack.pack(record.next))
  else
    redis.call('HDEL', record_key(id), 'next')
  end
end
