-- expirebridge_reschedule 1 <prefix> <id> <when>
--
-- Moves the due time of a task, and its timer with it.
--
-- returns  'moved', 'rearmed' (it runs: once more at that time), 'finished', 'not found' or 'elsewhere'

local function read_arguments(given, usage)
  check_count(given, 2, 2, usage)
  return { '', '', check_id(given[1]), check_when(given[2]) }
end

local function tell(reply) return changed(reply, 'moved') end
