-- include names
-- include clock
-- include format

-- Writes the version of the format, once: 1, which every version knows, until it is raised. Also the
-- time, so that a listener sees if the database was emptied. If listeners are still registered, it was
-- not: only this key was lost, and no time is written. If there are series, several partitions, or a
-- ledger, the format was 2.
local function mark_format()
  if written then return end
  local series = redis.pcall('ZCARD', series_set())
  local needs_2 = partitions > 1 or type(series) == 'number' and series > 0
    or type(redis.pcall('HGET', ledger_key(), 'nonce')) == 'string'
  redis.call('HSET', meta_key, 'format', needs_2 and 2 or 1, 'partitions', partitions)
  local listeners = redis.pcall('ZRANGE', listeners_key, 0, 0)
  if not listeners.err and not listeners[1] then
    redis.call('HSET', meta_key, 'born', string.format('%.0f', now_us))
  end
end
