-- flags: no-writes
-- Reads the limits that listeners declared, and the lanes in which most tasks are.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 most lanes to read
-- returns  {field, value, ...} of the limits as they were declared, then for each lane, the fullest first: name,
--          slots taken, tasks that wait, ms at which the first of these was due (-1: none waits)
--
-- Another client may have overwritten any of these keys: it reads as empty then.

-- include names
-- include format

local function list_of(result) return result.err and {} or result end
local function count_of(result) return type(result) == 'number' and result or 0 end

local reply = { list_of(redis.pcall('HGETALL', own_key('limits'))) }
for _, lane in ipairs(list_of(redis.pcall('ZREVRANGE', own_key('lanes'), 0, tonumber(ARGV[2]) - 1))) do
  local queue = own_key('queue:' .. lane)
  local first = list_of(redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES'))
  reply[#reply + 1] = lane
  reply[#reply + 1] = count_of(redis.pcall('SCARD', own_key('lane:' .. lane)))
  reply[#reply + 1] = count_of(redis.pcall('ZCARD', queue))
  local due = tonumber(first[2]) or -1
  -- That of a task that has had its turn is brought forward by so much: see admission.lua.
  reply[#reply + 1] = due < -1 and due + 2 ^ 52 or due
end
return reply
