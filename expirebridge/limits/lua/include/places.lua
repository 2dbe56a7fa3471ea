-- include names
-- include hooks
-- include limits
-- include records
-- gives place_of
-- on on_show 20 add_place

-- Another client may have overwritten any key of a lane.
local function count_of(result) return type(result) == 'number' and result or nil end

-- Where a waiting task stands, for a reader: the lane in which it waits, slots taken, tasks before it (-1: it is not
-- in line), the limit, or the hold, as it was declared, or false, and the number that was set and counts, or false.
local function place_of(id, lane)
  local held = string.match(lane, '^hold (.*)$')
  local spec = held and redis.pcall('HGET', own_key('holds'), held)
    or redis.pcall('HGET', own_key('limits'), 'l ' .. string.match(lane, '^[^=]*'))
  return { lane, count_of(redis.pcall('SCARD', own_key('lane:' .. lane))) or 0,
    count_of(redis.pcall('ZRANK', own_key('queue:' .. lane), id)) or -1,
    type(spec) == 'string' and spec or false, number_in and number_in(lane) or false }
end

local function add_place(id, shown)
  local lane = shown[3] == 'waiting' and value_of(shown[5], 'queue')
  if lane then shown[6] = place_of(id, lane) end
end
