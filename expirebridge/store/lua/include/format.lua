-- include names

-- The version of this format. A database that a newer version wrote is refused before anything is
-- read or changed. If another client overwrote `meta`, the version is unknown.
local FORMAT = 1
local written = redis.pcall('HGET', meta_key, 'format')
if type(written) == 'table' then
  if not string.find(written.err, 'WRONGTYPE', 1, true) then return written end
  written = nil
end
if written and (tonumber(written) or 0) > FORMAT then
  return redis.error_reply('EXPIREBRIDGE_FORMAT ' .. written .. ' ' .. FORMAT)
end
