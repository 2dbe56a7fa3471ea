-- include names
-- include clock
-- include format

-- Writes the version of the format, once, so that an older expirebridge refuses the database; and the
-- time, so that a listener sees if the database was emptied. If listeners are still registered, it was
-- not: only this key was lost, and no time is written.
local function mark_format()
  if written then return end
  redis.call('HSET', meta_key, 'format', FORMAT, 'partitions', 1)
  local listeners = redis.pcall('ZRANGE', listeners_key, 0, 0)
  if not listeners.err and not listeners[1] then
    redis.call('HSET', meta_key, 'born', string.format('%.0f', now_us))
  end
end
