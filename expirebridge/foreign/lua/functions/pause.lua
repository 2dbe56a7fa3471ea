-- expirebridge_pause 1 <prefix> <id>
--
-- Pauses a waiting task, and keeps the remaining time.
--
-- returns  'paused', 'running', 'finished', 'not found' or 'elsewhere'

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', '', check_id(given[1]) }
end

local function tell(reply) return changed(reply[1], 'paused') end
