-- flags: (none: refused whole when memory is full)
-- Declares the limits of a listener's handlers. Of several listeners the one that started last decides.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 fingerprint of the declaration, '' if the handlers have no limits, then names and values of
--          fields, for each function and each limit: see limits.lua
-- returns  1; or the error EXPIREBRIDGE_LIMITS if the database has several partitions
--
-- Handlers without limits matter only where there are limits: they may have had some before.

-- include names
-- include format
-- include features
-- include clock

local fingerprint = ARGV[2]

if fingerprint == '' and not uses.limits then return 1 end
if fingerprint ~= '' and partitions > 1 then
  return redis.error_reply('EXPIREBRIDGE_LIMITS ' .. partitions)
end
if type(redis.pcall('HLEN', own_key('limits'))) ~= 'number' then
  redis.call('RENAME', own_key('limits'), broken_key('limits'))
end
note_feature('limits')

-- include limits

-- The limits that functions have, as a set.
local function limits_in_use()
  local used, fields = {}, redis.call('HGETALL', own_key('limits'))
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 'f ' then
      for _, limit in ipairs(read_json(own_key('limits'), fields[i]) or {}) do
        -- Another client may have written anything; what this listener declares replaces it.
        if type(limit) == 'table' and type(limit[1]) == 'string' then used[limit[1]] = true end
      end
    end
  end
  return used
end

local before = limits_in_use()
local changed = false
for at = 3, #ARGV, 2 do
  changed = changed or redis.call('HGET', own_key('limits'), ARGV[at]) ~= ARGV[at + 1]
  redis.call('HSET', own_key('limits'), ARGV[at], ARGV[at + 1])
end
-- Some lanes may have more slots now, and tasks wait in lanes that their function has given up: the sweeps go over all of
-- them at once.
if changed then
  redis.call('HSET', own_key('limits'), 'changed', now, 'cursor', '0', 'changed waiting', now, 'waiting', '0')
end
local used = limits_in_use()
for name in pairs(before) do
  if not used[name] then redis.call('HSET', own_key('limits'), 'l ' .. name, '{}') end
end
if fingerprint ~= '' then redis.call('HSET', own_key('limits'), 'd ' .. fingerprint, now) end
return 1
