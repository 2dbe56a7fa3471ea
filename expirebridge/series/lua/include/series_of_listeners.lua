-- include format
-- include hooks
-- include series_keys
-- on on_beat 40 tell_next_making
-- on on_gone 40 forget_declarations

-- What listeners know of series, and these of listeners.

-- In plain use there is no series, so nothing is read.
local function tell_next_making(reply)
  local first = features and redis.call('ZRANGE', series_set(), 0, 0, 'WITHSCORES')[2]
  if first then reply[11] = tonumber(first) end
end

local function forget_declarations(listener) redis.pcall('HDEL', declarations_key(), listener) end
