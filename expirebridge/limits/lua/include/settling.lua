-- include clock
-- include format
-- include lane_names
-- include lanes
-- include limits
-- include names
-- include records
-- include hooks
-- when limits
-- on settle_fields 20 LANE_FIELDS
-- on on_settle 20 hear
-- on on_refused 20 hear_late
-- on on_settled 20 put_first
-- on on_succeed 20 free_slots
-- on on_anew 20 keep_begun

-- The part of limits in attempts that have ended, and in tasks that start anew.
local LANE_FIELDS = { 'waited', 'slots' }

-- Lets a lane of a rate rest until the millisecond in which this task is due again. Afterwards its tasks start at the
-- rate: a burst is what was not used before.
local function rest_lane(lane, delay)
  local ends = math.max((now + delay) * 1000, rate_score('rest ' .. lane))
  change_lane('ZADD', own_key('rates'), string.format('%.0f', ends), 'rest ' .. lane)
end

-- Charges what an attempt has spent beyond its cost. What is more than all that may start at once is a debt, for which
-- the lane rests.
local function charge_spent(lane, limit, spent)
  local takes = math.ceil(spent * limit.every / limit.starts)
  local arrival, most = arrival_of(lane, limit) + takes, now_us + limit.span
  change_lane('ZADD', own_key('rates'), string.format('%.0f', math.min(arrival, most)), lane)
  if arrival > most then
    local ends = arrival - limit.span + limit.interval
    change_lane('ZADD', own_key('rates'), string.format('%.0f', ends), 'rest ' .. lane)
  end
  touched[lane] = true
end

-- Takes back what an attempt was charged that did not begin its work, unless another was charged since: then nobody can
-- tell any longer what it has held up.
local function take_back_charges(record)
  local started, charges = string.match(record.charged or '', '^(%S+)\n(.*)$')
  if not started or started ~= record.started then return end -- those of an attempt before
  for line in string.gmatch(charges, '[^\n]+') do
    local arrival, takes, lane = string.match(line, '^(%d+) (%d+) (.*)$')
    if arrival and tonumber(arrival) == rate_score(lane) then
      change_lane('ZADD', own_key('rates'), string.format('%.0f', arrival - takes), lane)
      touched[lane] = true
    end
  end
end

-- What an attempt tells of its limits, with commas between them: `!` if it did not begin its work; `<limit>` of a rate
-- that is to rest; `<limit>+<n>` for what it has spent of a budget. Returns the lanes that rest, as a set.
local function read_told(id, record, told, delay)
  local limits = limits_of(string.match(record.call, '^[^?]*')) or NONE
  local more = redis.call('HMGET', record_key(id), 'args', 'lanes', 'charged')
  record.args, record.lanes, record.charged = more[1] or nil, more[2] or nil, more[3] or nil
  local lanes, resting = lanes_of(limits, record), {}
  for word in string.gmatch(told, '[^,]+') do
    local name, spent = string.match(word, '^(.*)%+(%d+)$')
    if word == '!' then take_back_charges(record) end
    for i, lane in ipairs(lanes) do
      local limit = limits[i][1] == (name or word) and limit_of(lane)
      if limit and limit.interval and spent then
        charge_spent(lane, limit, tonumber(spent))
      elseif limit and limit.interval then
        rest_lane(lane, delay)
        resting[lane] = true
      end
    end
  end
  return resting
end

local function hear(id, record, _, told, delay)
  if told and told ~= '-' then record.resting = read_told(id, record, told, delay) end
end

-- What an attempt has spent that lost its claim is charged once.
local function hear_late(id, record, token, told)
  if not told or not string.find(told, '+', 1, true) then return end
  if redis.call('HGET', record_key(id), 'spent') == token then return end
  read_told(id, record, string.gsub(told, '!', ''), 0)
  redis.call('HSET', record_key(id), 'spent', token)
end

-- It comes again before all others of the lanes.
local function put_first(id, record)
  if not record.resting then return end
  local lines = {}
  for lane in pairs(record.resting) do lines[#lines + 1] = '- ' .. lane end
  if lines[1] and record.state == 'pending' then
    redis.call('HSET', record_key(id), 'turn', table.concat(lines, '\n'))
  end
end

-- Takes tasks that have run out of all lanes.
local function free_slots(tasks)
  for _, task in ipairs(tasks) do
    local id, slots = task[1], task[3].slots
    if slots then
      for lane in string.gmatch(slots, '[^\n]+') do
        append(gone.lane, lane, id)
        touched[lane] = true
      end
      redis.call('HDEL', record_key(id), 'slots', 'tenant')
    end
  end
end

-- One that failed and let nobody pass in its ordered lane stays the one that has begun there.
local function keep_begun(id)
  local begun = redis.call('HMGET', record_key(id), 'slots', 'started')
  return begun[1] and begun[2] and { 'started', begun[2] }
end
