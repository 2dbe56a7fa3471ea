-- flags: no-writes
-- Reads the limits that listeners declared, and the lanes in which most tasks are.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 most lanes to read
-- returns  {field, value, ...} of the limits as they were declared; {field, value, 1 (it counts) or why not: see
--          numbers.lua, ...} of the numbers that were set; then for each lane, the fullest first: name, slots taken,
--          tasks that wait, ms at which the first of these was due (-1: none waits), the number that was set and counts
--          (-1: none)
--
-- Another client may have overwritten any of these keys: it reads as empty then.

-- include names
-- include format
-- include limits
-- include numbers

local function list_of(result) return result.err and {} or result end
local function count_of(result) return type(result) == 'number' and result or 0 end

local numbers, found = {}, list_of(redis.pcall('HGETALL', own_key('numbers')))
for i = 1, #found, 2 do
  local name = string.match(found[i], '^[^ ]*')
  numbers[#numbers + 1] = found[i]
  numbers[#numbers + 1] = found[i + 1]
  numbers[#numbers + 1] = judge_number(name, name ~= found[i], found[i + 1])
end

local reply = { list_of(redis.pcall('HGETALL', own_key('limits'))), numbers }
for _, lane in ipairs(list_of(redis.pcall('ZREVRANGE', own_key('lanes'), 0, tonumber(ARGV[2]) - 1))) do
  local queue = own_key('queue:' .. lane)
  local first = list_of(redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES'))
  reply[#reply + 1] = lane
  reply[#reply + 1] = count_of(redis.pcall('SCARD', own_key('lane:' .. lane)))
  reply[#reply + 1] = count_of(redis.pcall('ZCARD', queue))
  local due = tonumber(first[2]) or -1
  -- That of a task that has had its turn is brought forward by so much: see admission.lua.
  reply[#reply + 1] = due < -1 and due + 2 ^ 52 or due
  reply[#reply + 1] = number_in and number_in(lane) or -1
end
return reply
