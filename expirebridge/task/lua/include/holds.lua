-- include names
-- include clock
-- include format
-- gives HOLD, any_hold, is_hold, end_of_hold, is_held

-- Holds: the hash `holds` has the fields `func <name>` and `tag <tag>`. The value is JSON with `until` in ms;
-- anything else holds without end. What is held waits in the queue of a lane of its own.
local HOLD = 'hold '
local any_hold

local is_hold = uses_limits and function(lane) return string.sub(lane, 1, #HOLD) == HOLD end

-- The ms until which a value of the hash holds; nil if it holds without end.
local function end_of_hold(value)
  local well, hold = pcall(cjson.decode, value)
  local ends = well and type(hold) == 'table' and hold['until']
  return type(ends) == 'number' and ends == ends and ends or nil
end

local is_held = uses_limits and function(field)
  if any_hold == nil then any_hold = redis.call('EXISTS', holds_key()) == 1 end
  if not any_hold then return false end
  local value = redis.pcall('HGET', holds_key(), field)
  if type(value) ~= 'string' then return false end
  local ends = end_of_hold(value)
  return not ends or ends > now
end
