-- flags: (none: refused whole when memory is full)
-- Replaces what is stored in fields of tasks and series, where it is still what was read.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then for each field: 'task' or 'series', id, field, what was read, what replaces it
-- returns  for each: 1 replaced, now or when this was sent before; 0 it has changed, or is gone

-- include names
-- include format

local reply = {}
for at = 2, #ARGV, 5 do
  local kind, id, field, old, new = unpack(ARGV, at, at + 4)
  local key = own_key(kind .. ':' .. id)
  local stored = redis.pcall('HGET', key, field)
  if stored == old then redis.call('HSET', key, field, new) end
  reply[#reply + 1] = (stored == old or stored == new) and 1 or 0
end
return reply
