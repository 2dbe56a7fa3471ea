-- include groups
-- include hooks
-- include records
-- on on_list 30 ids_by_group

-- The members of a group, for `list`.

-- The most numbers of a group that one call looks at or passes over, which takes about half a ms.
local MOST_PASSED = 1024
local OPEN, FAILED, ENDED = 1, 2, 3 -- what the two bits of a member say: see groups.lua

-- What the two bits of a member in the state can be. A failed one that is not waited for has ended like others.
local function bits_in_state(state, on_failed, stopped)
  if not FINISHED[state] then return { [OPEN] = true } end
  if state ~= 'failed' then return { [ENDED] = true } end
  return { [FAILED] = true, [ENDED] = on_failed ~= 'wait' or stopped }
end

local function ids_by_group(state, cursor, count)
  local group = ARGV[7]
  if group == '' then return nil end
  local known = redis.pcall('HMGET', group_key(group), 'next', 'on_failed', 'stopped')
  local number, next_number = tonumber(cursor), number_up_to(MOST_MEMBERS, known[1]) or 0
  local stop = math.min(number + MOST_PASSED, next_number)
  local wanted = state ~= '' and bits_in_state(state, known[2], known[3])
  local bytes = wanted and redis.pcall('GET', group_key(group, '@members'))
  if wanted and type(bytes) ~= 'string' then return '0', {} end
  local ids = {}
  while number < stop and #ids < count do
    -- Four members a byte, the first in its highest bits.
    local byte = wanted and string.byte(bytes, math.floor(number / 4) + 1) or 0
    if not wanted or wanted[math.floor(byte / 4 ^ (3 - number % 4)) % 4] then
      ids[#ids + 1] = string.format('%s@g%.0f', group, number)
    end
    number = number + 1
  end
  return number < next_number and string.format('%.0f', number) or '0', ids
end
