-- include names
-- include clock

-- When any listener beat last, in ms; 0 if none is known.
local function last_beat()
  return tonumber(redis.call('ZREVRANGE', listeners_key, 0, 0, 'WITHSCORES')[2]) or 0
end

-- If none beat for half a lease, the server was away or its clock jumped: no listener died.
local function is_long_ago(beat, lease) return now - beat > lease / 2 end
