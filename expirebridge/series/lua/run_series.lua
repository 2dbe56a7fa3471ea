-- flags: (none: refused whole when memory is full)
-- Makes one more tick of a series, due now; the others stay as they are.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id
-- returns  the tick's id, or nil if there is no such series

-- include format
-- include clock
-- include records
-- include series
-- include series_keys
-- include ring

local nonce, id = ARGV[2], ARGV[3]
local known = redis.pcall('HMGET', series_key(id), 'call', 'extra', 'due')
if known.err or not known[1] or not has_place(id) then return false end
local before, tick = string.match(known[2] or '', '^(%S+) (%S+)$')
if before == nonce then return tick end
return ring_after(function()
  local at = now
  while read(tick_id(id, at)) do at = at + 1 end
  local due = tonumber(known[3] or nil)
  local made = make_tick(id, at, now, due and due > now and due or nil)
  redis.call('HSET', series_key(id), 'extra', nonce .. ' ' .. made)
  return made
end)
