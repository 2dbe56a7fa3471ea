-- Writes the version of the format, once, so that an older expirebridge knows to keep away; and the
-- time, by which a listener sees that the database it knew was emptied.
local function mark_format()
  if not written then
    local born = string.format('%.0f', now_us)
    redis.call('HSET', meta_key, 'format', FORMAT, 'partitions', 1, 'born', born)
  end
end
