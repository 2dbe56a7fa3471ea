-- expirebridge_close_group 1 <prefix> <name> [<members>]
--
-- Closes a group: it takes no more members, and ends when all have ended. With `members`, only if that many were made, from
-- number 0 on.
--
-- returns  'closed', now or before, 'lacking' (members are missing: nothing was changed), or 'not found'

local function read_arguments(given, usage)
  check_count(given, 1, 2, usage)
  local members = given[2]
  if members and not (string.match(members, '^%d+$') and tonumber(members) <= 100000) then
    refuse('members=' .. short(members) .. ': write how many it has, up to 100000')
  end
  return { '', check_group(given[1]), members }
end

local function tell(code) return code == 1 and 'closed' or code == 0 and 'not found' or 'lacking' end
