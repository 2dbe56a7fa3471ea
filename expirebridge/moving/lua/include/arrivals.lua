-- include names
-- include format
-- include clock
-- gives open_lanes

-- Lets tasks begin in ordered lanes again: the sweeps go over all lanes, as after a change of limits.
local function open_lanes()
  if redis.call('HDEL', own_key('arrivals'), 'closed') == 0 or not uses.limits then return end
  redis.pcall('HSET', own_key('limits'), 'changed', now, 'cursor', '0')
end
