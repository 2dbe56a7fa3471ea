-- flags: no-writes
-- Finds tasks that wait because no listener had their function, key or codec.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms that such a task waits at a time, 3 most tasks to look at
-- returns  how many tasks were looked at, then for each one found its function and the beginning of its error
--
-- Such a task is repeatedly tried, so it is among those that are due soon.

-- include names
-- include clock
-- include records

local ids = redis.call('ZRANGEBYSCORE', state_set('pending'), '-inf', now + tonumber(ARGV[2]),
  'LIMIT', 0, ARGV[3])
local reply = { #ids }
for _, id in ipairs(ids) do
  local record = read(id, { 'unknown', 'error' })
  if record and record.unknown then
    reply[#reply + 1] = string.match(record.call, '^[^?]*')
    reply[#reply + 1] = string.sub(record.error or '', 1, 50)
  end
end
return reply
