-- gives HOLD, end_of_hold

-- Holds: the hash `holds` has the fields `func <name>`, `tag <tag>`, and `all`. The value is JSON with `until` in ms;
-- anything else holds without end. What is held waits in the queue of a lane of its own.
local HOLD = 'hold '

-- The ms until which a value of the hash holds; nil if it holds without end.
local function end_of_hold(value)
  local well, hold = pcall(cjson.decode, value)
  local ends = well and type(hold) == 'table' and hold['until']
  return type(ends) == 'number' and ends == ends and ends or nil
end
