-- expirebridge_run_now 1 <prefix> <id>
--
-- Makes a task due now; a finished one runs again.
--
-- returns  'due now', 'running', 'not found' or 'elsewhere'

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', '', check_id(given[1]) }
end

local function tell(reply) return changed(reply, 'due now') end
