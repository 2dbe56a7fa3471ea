-- flags: no-writes
-- Reads a page of tasks: of one state, of one tag, or of one group.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 state or '' for any, 3 func or '', 4 tag or '', 5 cursor ('0' to begin),
--          6 most tasks to look at, 7 group or ''
-- returns  next cursor ('0': no more), how many were looked at, then the tasks, as `get` does
--
-- Without a tag and a group it requires the state, and the cursor is a rank in its set: waiting tasks come soonest
-- first, finished ones latest first. Of a group it is the number of a member; those that cannot be in the state are
-- passed over by their bits, and not counted as looked at.

-- include names
-- include records
-- include task_view
-- include groups

-- The most numbers of a group that one call looks at or passes over, which takes about half a ms.
local MOST_PASSED = 1024
local OPEN, FAILED, ENDED = 1, 2, 3 -- what the two bits of a member say: see groups.lua

local state, func, tag, cursor, count, group = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]

local function ids_by_state()
  local from = tonumber(cursor)
  local order = FINISHED[state] and 'ZREVRANGE' or 'ZRANGE'
  local ids = redis.call(order, state_set(state), from, from + count - 1)
  return #ids < count and '0' or string.format('%.0f', from + #ids), ids
end

local function ids_by_tag()
  local page = redis.call('SSCAN', tag_set(tag), cursor, 'COUNT', count)
  return page[1], page[2]
end

-- What the two bits of a member in the state can be. A failed one that is not waited for has ended like others.
local function bits_in_state(on_failed, stopped)
  if not FINISHED[state] then return { [OPEN] = true } end
  if state ~= 'failed' then return { [ENDED] = true } end
  return { [FAILED] = true, [ENDED] = on_failed ~= 'wait' or stopped }
end

local function ids_by_group()
  local known = redis.pcall('HMGET', group_key(group), 'next', 'on_failed', 'stopped')
  local number, next_number = tonumber(cursor), tonumber(known[1] or nil) or 0
  local stop = math.min(number + MOST_PASSED, next_number)
  local wanted = state ~= '' and bits_in_state(known[2], known[3])
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

local next_cursor, ids
if group ~= '' then
  next_cursor, ids = ids_by_group()
elseif tag ~= '' then
  next_cursor, ids = ids_by_tag()
else
  next_cursor, ids = ids_by_state()
end

local reply = { next_cursor, #ids }
for _, id in ipairs(ids) do
  local record = read(id)
  if record and (state == '' or record.state == state)
    and (func == '' or string.sub(record.call, 1, #func + 1) == func .. '?') then
    local score = tonumber(redis.call('ZSCORE', state_set(record.state), id))
    reply[#reply + 1] = view(id, record.state, score)
  end
end
return reply
