-- flags: no-writes
-- Reads the holds, the weights of tenants and the numbers of limits as they are stored.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  for each: 'holds', 'weights' or 'numbers', its field and its value

-- include names
-- include format

local reply = {}
for name, key in pairs({ holds = own_key('holds'), weights = own_key('weights'), numbers = own_key('numbers') }) do
  local fields = redis.pcall('HGETALL', key)
  for i = 1, #fields, 2 do
    reply[#reply + 1] = name
    reply[#reply + 1] = fields[i]
    reply[#reply + 1] = fields[i + 1]
  end
end
return reply
