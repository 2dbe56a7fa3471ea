-- flags: no-writes
-- Counts the retries among the tasks that come next, and lists the functions of the tasks.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 most tasks to look at
-- returns  how many were looked at, how many of them wait for another attempt, then each function once

-- include names
-- include records

local ids = redis.call('ZRANGE', state_set('pending'), 0, tonumber(ARGV[2]) - 1)
local reply, known = { #ids, 0 }, {}
for _, id in ipairs(ids) do
  local record = read(id, { 'attempt' })
  if record then
    if (tonumber(record.attempt) or 0) > 0 then reply[2] = reply[2] + 1 end
    local func = string.match(record.call, '^[^?]*')
    if not known[func] then
      known[func] = true
      reply[#reply + 1] = func
    end
  end
end
return reply
