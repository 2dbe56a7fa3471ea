-- include names

-- The version of what is stored: 1 in plain use, 2 once something is used that older code would
-- overlook (see raise_format). A database that a newer version wrote is refused before anything is
-- read or changed. If another client overwrote `meta`, the version is unknown.
--
-- Beside it, which code the fleet runs: the fingerprints of the listeners that beat, separated by
-- spaces. One word means that all run the same.
local KNOWN_FORMAT = 2
local meta = redis.pcall('HMGET', meta_key, 'format', 'code')
if meta.err then
  if not string.find(meta.err, 'WRONGTYPE', 1, true) then return meta end
  meta = {}
end
local written, fleet_code = meta[1], meta[2]
if written and (tonumber(written) or 0) > KNOWN_FORMAT then
  return redis.error_reply('EXPIREBRIDGE_FORMAT ' .. written .. ' ' .. KNOWN_FORMAT)
end
