-- include names
-- include format
-- include clock
-- gives mark_format, note_feature

-- Writes the version of the format, once, and the time, so that a listener sees if the database was
-- emptied. If listeners are still registered, it was not: only this key was lost, and no time is written.
-- The features in use are noted again.
local function mark_format()
  if written then return end
  -- Keys are named here, and not by the functions of names.lua: each of those would cost each task that is made.
  local used = {}
  if partitions > 1 then used[#used + 1] = 'partitions' end
  local series = redis.pcall('ZCARD', own_key('series'))
  if type(series) == 'number' and series > 0 then used[#used + 1] = 'series' end
  if type(redis.pcall('HGET', own_key('ledger'), 'nonce')) == 'string' then used[#used + 1] = 'ledger' end
  local known_groups = redis.pcall('ZCARD', own_key('groups'))
  if type(known_groups) == 'number' and known_groups > 0 then used[#used + 1] = 'groups' end
  if redis.call('EXISTS', own_key('limits'), own_key('lanes'), own_key('held'), own_key('holds')) > 0 then
    used[#used + 1] = 'limits'
  end
  if redis.call('EXISTS', own_key('signals')) == 1 then used[#used + 1] = 'signals' end
  if redis.call('EXISTS', own_key('urgent'), own_key('urgent_functions')) > 0 then used[#used + 1] = 'urgent' end
  redis.call('HSET', meta_key, 'format', KNOWN_FORMAT, 'partitions', partitions)
  written = tostring(KNOWN_FORMAT)
  if used[1] then
    features = table.concat(used, ' ')
    redis.call('HSET', meta_key, 'features', features)
  end
  local listeners = redis.pcall('ZRANGE', listeners_key, 0, 0)
  if not listeners.err and not listeners[1] then
    redis.call('HSET', meta_key, 'born', string.format('%.0f', now_us))
  end
end

-- Notes in `meta` that the database uses a feature: 'series', 'ledger', 'limits', 'groups', 'signals', 'urgent' or 'moving' ('partitions' is noted
-- with their number). A script calls this before its first write that plain use does not make, and before it includes what
-- serves that feature alone.
local function note_feature(name)
  mark_format()
  uses[name], plain = true, false
  local words = ' ' .. (features or '') .. ' '
  if string.find(words, ' ' .. name .. ' ', 1, true) then return end
  features = features and features .. ' ' .. name or name
  redis.call('HSET', meta_key, 'features', features)
end
