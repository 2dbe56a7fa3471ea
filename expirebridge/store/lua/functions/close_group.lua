-- expirebridge_close_group 1 <prefix> <name>
--
-- Closes a group: it takes no more members, and ends when all have ended.
--
-- returns  'closed', now or before, or 'not found'

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', check_group(given[1]) }
end

local function tell(code) return code == 1 and 'closed' or 'not found' end
