-- flags: no-writes
-- Lists the holds, and how many tasks wait for the end of each.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  for each: its field and value in the hash, the ms at which it ends (-1: never), tasks that wait

-- include names
-- include format
-- include clock
-- include holds
-- include lane_keys

local reply, fields = {}, redis.pcall('HGETALL', own_key('holds'))
for i = 1, #fields, 2 do
  local ends = end_of_hold(fields[i + 1])
  if not ends or ends > now then
    local waiting = redis.pcall('ZCARD', queue_key(HOLD .. fields[i]))
    reply[#reply + 1] = fields[i]
    reply[#reply + 1] = fields[i + 1]
    reply[#reply + 1] = ends and ends < 2 ^ 53 and math.floor(ends) or -1
    reply[#reply + 1] = type(waiting) == 'number' and waiting or 0
  end
end
return reply
