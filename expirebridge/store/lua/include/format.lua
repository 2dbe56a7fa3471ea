-- The version of this format. A database that a newer version wrote is refused before anything is
-- read or changed.
local FORMAT = 1
local written = redis.call('HGET', meta_key, 'format')
if written and tonumber(written) > FORMAT then
  return redis.error_reply('EXPIREBRIDGE_FORMAT ' .. written .. ' ' .. FORMAT)
end
