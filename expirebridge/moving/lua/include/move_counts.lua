-- include clock
-- include format
-- include hooks
-- include names
-- unless plain
-- on on_count 50 count_move

-- While there is a move, the numbers of tasks are followed by what `count` tells of it.
local function count_move(reply)
  if not moving then return end
  local hash = string.sub(moving, 1, 3) == 'to ' and 'move' or 'arrivals'
  local known = redis.call('HMGET', own_key(hash), 'items', 'at')
  reply[10], reply[11] = moving, redis.call('ZCARD', own_key('series'))
  reply[12], reply[13] = tonumber(known[1] or 0), known[2] and now - tonumber(known[2]) or -1
end
