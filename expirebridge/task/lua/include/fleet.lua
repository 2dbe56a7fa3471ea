-- include names
-- include format
-- include clock
-- include hooks
-- gives last_beat, is_long_ago, is_fingerprint, values_of, codes_of, forget_codes, UNKNOWN_TIMEOUT, others_can_run

-- The time of the latest heartbeat of any listener, in ms; 0 if there is none.
local function last_beat()
  return tonumber(redis.call('ZREVRANGE', listeners_key, 0, 0, 'WITHSCORES')[2]) or 0
end

-- True if no heartbeat came for half a lease: the server was away or its clock jumped, and no listener died.
local function is_long_ago(beat, lease) return now - beat > lease / 2 end

-- The hash `fleet` holds the fingerprint of each listener's code, and a word for its concurrency, such as `=100`. A
-- listener that passes over many tasks whose functions no listener has adds the word `?`.
local LISTENERS_AT_ONCE = 1000

local function is_fingerprint(word) return #word <= 40 and string.find(word, '^%x+$') ~= nil end

-- The values of a hash for these listeners, in order; false for a missing one.
local function values_of(key, listeners)
  local values = {}
  for from = 1, #listeners, LISTENERS_AT_ONCE do
    local upto = math.min(from + LISTENERS_AT_ONCE - 1, #listeners)
    -- A key that another client overwrote counts as empty.
    local part = redis.pcall('HMGET', key, unpack(listeners, from, upto))
    for i = 1, upto - from + 1 do values[#values + 1] = part[i] or false end
  end
  return values
end

-- The codes of these listeners, in order; false where it is unknown.
local function codes_of(listeners) return values_of(fleet_key(), listeners) end

-- Deletes the codes of listeners that are gone, and what else is known of them, and the functions of codes that no other runs.
local function forget_codes(gone)
  local unused = {}
  for _, code in ipairs(codes_of(gone)) do
    local fingerprint = string.match(code or '', '^%x+')
    if fingerprint then unused[fingerprint] = true end
  end
  for _, listener in ipairs(gone) do
    redis.pcall('HDEL', fleet_key(), listener)
    for i = 1, #on_gone do on_gone[i](listener) end
  end
  for _, code in ipairs(codes_of(redis.call('ZRANGE', listeners_key, 0, -1))) do
    local fingerprint = string.match(code or '', '^%x+')
    if fingerprint then unused[fingerprint] = nil end
  end
  for fingerprint in pairs(unused) do redis.call('DEL', code_key(fingerprint)) end
end

-- Time in ms that a task waits for a listener that has its function.
local UNKNOWN_TIMEOUT = 86400000

-- True if another code of the fleet than `mine` can run the function: it has the function, with another signature
-- if `mine` has it, too, and is not among the codes that `refused` the task. Second, the signature in `mine`, or
-- nil. A declaration that another client overwrote counts as empty.
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
