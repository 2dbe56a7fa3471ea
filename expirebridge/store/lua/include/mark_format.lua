-- include names
-- include clock
-- include format

-- Writes the version of the format, once, so that an older expirebridge knows to keep away; and the
-- time, by which a listener sees that the database it knew was emptied. If listeners are still known, it
-- was not: only this one key is lost, and nothing is said of the time.
local function mark_format()
  if written then return end
  redis.call('HSET', meta_key, 'format', FORMAT, 'partitions', 1)
  local listeners = redis.pcall('ZRANGE', listeners_key, 0, 0)
  if not listeners.err and not listeners[1] then
    redis.call('HSET', meta_key, 'born', string.format('%.0f', now_us))
  end
end
