-- Writes the version of the format, once, so that an older expirebridge knows to keep away.
local function mark_format()
  if not written then redis.call('HSET', meta_key, 'format', FORMAT, 'partitions', 1) end
end
