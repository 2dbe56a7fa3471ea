-- include names

-- Another client may have overwritten a key of ours, and every script would fail on it. It is moved
-- aside; a scan then finds which tasks had a place there.
local mended = {}

local function mend(name, kind)
  local key = own_key(name)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then
    redis.call('RENAME', key, broken_key(name))
    mended[#mended + 1] = name
  end
end
