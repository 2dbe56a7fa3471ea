-- expirebridge_resume 1 <prefix> <id>
--
-- Resumes a paused task.
--
-- returns  'resumed', 'running', 'finished', 'not found' or 'elsewhere'

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', '', '', check_id(given[1]) }
end

local function tell(reply) return changed(reply[1], 'resumed') end
