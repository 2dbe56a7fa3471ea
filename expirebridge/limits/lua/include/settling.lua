-- include clock
-- include format
-- include lane_names
-- include lanes
-- include limits
-- include names
-- include hooks
-- when limits
-- on settle_fields 20 LANE_FIELDS
-- on on_settle 20 rest_if_busy
-- on on_settled 20 put_first
-- on on_succeed 20 free_slots
-- on on_anew 20 keep_begun

-- The part of limits in attempts that have ended, and in tasks that start anew.
local LANE_FIELDS = { 'waited', 'slots' }

-- Lets the task's lane of a rate rest, and returns it. Afterwards its tasks start at the rate: a burst is what was not
-- used before.
local function rest_lane(id, record, name, delay)
  local limits = limits_of(string.match(record.call, '^[^?]*')) or {}
  record.args = redis.call('HGET', record_key(id), 'args') or nil
  local lanes, rests = lanes_of(limits, record), nil
  for i, limit in ipairs(limits) do
    local spec = limit[1] == name and limit_of(lanes[i])
    if spec and tonumber(spec.interval) then
      rests = lanes[i]
      -- Until the millisecond in which this task is due again.
      local arrival = (now + delay) * 1000 + (burst_of(spec) - 1) * spec.interval
      arrival = string.format('%.0f', math.max(arrival, rate_score(rest_of(lanes[i]))))
      change_lane('ZADD', own_key('rates'), arrival, rest_of(lanes[i]))
    end
  end
  return rests
end

local function rest_if_busy(id, record, outcome, rate, delay)
  if outcome == 'busy' then record.rests = rest_lane(id, record, rate, delay) end
end

-- It comes again before all others of the lane.
local function put_first(id, record)
  if record.rests and record.state == 'pending' then redis.call('HSET', record_key(id), 'turn', '- ' .. record.rests) end
end

-- Takes tasks that have run out of all lanes.
local function free_slots(tasks)
  for _, task in ipairs(tasks) do
    local id, slots = task[1], task[3].slots
    for lane in string.gmatch(slots or '', '[^\n]+') do
      append(gone.lane, lane, id)
      touched[lane] = true
    end
    if slots then redis.call('HDEL', record_key(id), 'slots', 'tenant') end
  end
end

-- One that failed and let nobody pass in its ordered lane stays the one that has begun there.
local function keep_begun(id)
  local begun = redis.call('HMGET', record_key(id), 'slots', 'started')
  return begun[1] and begun[2] and { 'started', begun[2] }
end
