-- flags: allow-oom
-- Lowers the format to 1, so that older code accepts the database again.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  1, or the error EXPIREBRIDGE_STILL_USED with what needs format 2: nothing is written then

-- include names
-- include format
-- include format_uses

local uses = uses_of_format_2()
if uses[1] then
  return redis.error_reply('EXPIREBRIDGE_STILL_USED ' .. table.concat(uses, ' '))
end
if written and written ~= '1' then redis.call('HSET', meta_key, 'format', 1) end
return 1
