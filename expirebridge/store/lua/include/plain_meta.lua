-- include names
-- include format
-- include mend

-- With several partitions on one server, `meta` without a tag keeps out callers who assume one partition. If it is lost, or another client overwrote it, partition 0 writes it again. In a
-- cluster it is not needed, and no script may ask for it.
local function guard_plain_meta()
  if partitions == 1 or slot ~= FIRST_TAG then return end
  local key = string.sub(meta_key, #slot + 1)
  local stored = redis.pcall('HMGET', key, 'features', 'partitions')
  if stored.err and not string.find(stored.err, 'WRONGTYPE', 1, true) then return end
  if stored[1] and stored[2] == tostring(partitions) then return end
  if stored.err then redis.call('RENAME', key, broken_key('plain_meta')) end
  redis.call('HSET', key, 'format', KNOWN_FORMAT, 'partitions', partitions, 'features', 'partitions')
  if stored.err or stored[2] then mended[#mended + 1] = 'meta' end
end
