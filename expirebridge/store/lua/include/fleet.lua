-- include names
-- include format
-- include clock

-- When any listener beat last, in ms; 0 if none is known.
local function last_beat()
  return tonumber(redis.call('ZREVRANGE', listeners_key, 0, 0, 'WITHSCORES')[2]) or 0
end

-- If none beat for half a lease, the server was away or its clock jumped: no listener died.
local function is_long_ago(beat, lease) return now - beat > lease / 2 end

-- Which code each listener runs: `fleet` holds the fingerprint of each. A listener that passes over
-- many stranded tasks, whose functions nobody knows, adds the word `?`.
local LISTENERS_AT_ONCE = 1000

local function is_fingerprint(word) return #word <= 40 and string.find(word, '^%x+$') ~= nil end

-- What a hash holds of these listeners, by their places; false for nothing.
local function values_of(key, listeners)
  local values = {}
  for from = 1, #listeners, LISTENERS_AT_ONCE do
    local upto = math.min(from + LISTENERS_AT_ONCE - 1, #listeners)
    -- What another client put there says nothing of anybody.
    local part = redis.pcall('HMGET', key, unpack(listeners, from, upto))
    for i = 1, upto - from + 1 do values[#values + 1] = part[i] or false end
  end
  return values
end

-- What these listeners run; false for those of which nothing is known.
local function codes_of(listeners) return values_of(fleet_key(), listeners) end

-- Forgets what listeners carried that are gone, their code, and what no other listener runs.
local function forget_codes(gone)
  local unused = {}
  for _, code in ipairs(codes_of(gone)) do
    local fingerprint = string.match(code or '', '^%x+')
    if fingerprint then unused[fingerprint] = true end
  end
  for _, listener in ipairs(gone) do
    redis.pcall('HDEL', fleet_key(), listener)
    redis.pcall('HDEL', declarations_key(), listener)
  end
  for _, code in ipairs(codes_of(redis.call('ZRANGE', listeners_key, 0, -1))) do
    local fingerprint = string.match(code or '', '^%x+')
    if fingerprint then unused[fingerprint] = nil end
  end
  for fingerprint in pairs(unused) do redis.call('DEL', code_key(fingerprint)) end
end

-- How long a task waits for a listener that knows its function, in ms.
local UNKNOWN_LIMIT = 86400000

-- Whether a listener that beats may take a task instead of those that run the code `mine`: it knows the
-- function, in another shape if `mine` knows it, too, and its code is not one of those that `refused`.
-- Beside it, the shape of the function in `mine`, if that knows it. What another client put in the
-- place of a declaration knows nothing.
local function others_can_run(func, mine, refused)
  local others, own = false, nil
  for fingerprint in string.gmatch(mine .. ' ' .. (fleet_code or ''), '%x+') do
    local shape = func ~= '#' and redis.pcall('HGET', code_key(fingerprint), func)
    if type(shape) == 'string' then
      if fingerprint == mine then
        own = shape
      elseif shape ~= own and not string.find(refused, fingerprint, 1, true) then
        others = true
      end
    end
  end
  return others, own
end
