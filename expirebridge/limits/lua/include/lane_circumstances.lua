-- include format
-- include hooks
-- include lane_keys
-- include limits
-- include names
-- include places
-- include records
-- on on_tell 20 tell_lane

-- What the lane of a task has to do with when it runs, for `read_circumstances`.

-- Of those that have a slot, so many are read.
local MOST_HOLDERS = 4

local function score_of(key, member) return tonumber(redis.pcall('ZSCORE', key, member) or nil) end

local function tell_holders(lane, tell)
  local page = redis.pcall('SSCAN', lane_key(lane), 0, 'COUNT', 10)
  for i, id in ipairs(page[2] or {}) do
    if i > MOST_HOLDERS then break end
    local record = is_id(id) and read(id)
    tell('holder', id)
    tell('is', record and record.state or '')
  end
end

-- Of a budget: the microseconds that are taken by those that were granted a start, by those before a task, of which so
-- many are read, and by itself.
local MOST_BEFORE = 50

local function tell_taken(id, lane, tell)
  local limit = limit_of and limit_of(lane)
  if not limit or not limit.of then return end
  local rank, sum = redis.pcall('ZRANK', queue_key(lane), id), reserved_in(lane, limit)
  rank = type(rank) == 'number' and rank or 0
  for _, each in ipairs(redis.call('ZRANGE', queue_key(lane), 0, math.min(rank, MOST_BEFORE))) do
    sum = sum + taken_by(each, lane, limit)
  end
  tell('takes', sum)
end

-- Each returns the place of a pending task in the lane in which it was granted a slot, or a start.
local TELL_LANE = {
  pending = function(id, fields, tell)
    local slots = is_held and value_of(fields, 'slots')
    if not slots or not score_of(own_key('grants'), id) then return nil end
    local lane = string.match(slots, '^.*\n(.*)') or slots
    tell('rest', score_of(own_key('rates'), 'rest ' .. lane))
    return place_of(id, lane)
  end,
  waiting = function(id, fields, tell)
    local lane = value_of(fields, 'queue') or ''
    tell_taken(id, lane, tell)
    tell('parked', value_of(fields, 'parked'))
    tell('arrival', score_of(own_key('rates'), lane))
    tell('rest', score_of(own_key('rates'), 'rest ' .. lane))
    local hold = string.match(lane, '^hold (.*)$')
    tell('held', hold and is_held and is_held(hold) and 1)
    local is_closed = moving and (string.sub(moving, 1, 3) == 'to '
      or redis.pcall('HEXISTS', own_key('arrivals'), 'closed') == 1)
    tell('moving', is_closed and moving)
    tell_holders(lane, tell)
  end,
  failed = function(_, fields, tell) tell('slots', value_of(fields, 'slots')) end,
}

local function tell_lane(id, record, fields, tell)
  local tell_of = TELL_LANE[record.state]
  return tell_of and tell_of(id, fields, tell)
end
