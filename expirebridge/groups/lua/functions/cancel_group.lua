-- expirebridge_cancel_group 1 <prefix> <name>
--
-- Cancels a group: its follow-up at once, and the next 100 of its members.
--
-- returns  'cancelled', 'more' (members are left: call it again, or listeners go on), 'ended' or 'not found'

-- Time in ms for which a member can be looked up: the default of the setting keep_succeeded.
local KEEP = 3600000
local AT_ONCE = 100
local WORDS_OF_CODES = { [0] = 'cancelled', 'more', [-1] = 'not found', [-2] = 'ended' }

local function read_arguments(given, usage)
  check_count(given, 1, 1, usage)
  return { '', check_group(given[1]), KEEP, AT_ONCE }
end

local function tell(code) return WORDS_OF_CODES[code] end
