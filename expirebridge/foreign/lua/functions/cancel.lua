-- expirebridge_cancel 1 <prefix> <id>
--
-- Cancels a task. A running one is not attempted again.
--
-- returns  'cancelled', 'running', 'finished', 'not found' or 'elsewhere'

-- Time in ms for which it can be looked up: the default of the setting keep_succeeded.
local KEEP = 3600000

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', '', KEEP, check_id(given[1]) }
end

local function tell(reply) return changed(reply[1], 'cancelled') end
