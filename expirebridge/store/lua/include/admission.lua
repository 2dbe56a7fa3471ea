-- include names
-- include clock
-- include state_sets
-- include lanes
-- include limits
-- include holds
-- include lane_names
-- include tick_claims
-- include records
-- include format

-- Decides for a claim whether a due task has its slots, or waits for one.

-- Tasks that this script made wait.
local parked = 0
-- At most so many in one script.
local MOST_PARKED = 100
local limits_of_functions = {}

-- The limits of a function, or nil.
local limits_of = uses_limits and function(func)
  if limits_of_functions[func] == nil then
    local list = read_json(limits_key(), 'f ' .. func)
    limits_of_functions[func] = list and list[1] and list or false
  end
  return limits_of_functions[func] or nil
end

-- The value of an argument, for the name of a lane.
local value_of_argument = uses_limits and function(args, place, parameter, default)
  local json = argument_of(args, tonumber(place) or -1, parameter)
  return json and value_of_lane(json) or type(default) == 'string' and default or ''
end

-- The lanes of a task, in the order in which it takes its slots; and by lane the tenant whose turn it takes.
local lanes_of = uses_limits and function(limits, record)
  local lanes, tenants, args = {}, {}, record.args or string.match(record.call, '%?(.*)$') or ''
  for i, limit in ipairs(limits) do
    local name, place, parameter, default = unpack(limit, 1, 4)
    lanes[i] = name
    if type(parameter) == 'string' then
      lanes[i] = name .. '=' .. value_of_argument(args, place, parameter, default)
    end
    if limit[6] then tenants[lanes[i]] = value_of_argument(args, unpack(limit, 5, 7)) end
  end
  return lanes, tenants
end

-- The hold that keeps a task back, as the name of a lane; or nil.
local hold_on = uses_limits and function(func, record)
  if is_held('func ' .. func) then return HOLD .. 'func ' .. func end
  if not any_hold then return nil end
  for tag in string.gmatch(record.tags or '', '%S+') do
    if is_held('tag ' .. tag) then return HOLD .. 'tag ' .. tag end
  end
  return nil
end

-- Of the ticks of a series only the latest waits: the one before it was missed.
local end_tick_before = uses_limits and function(id, keep_failed)
  local series = string.match(id, '^(.+)@%d+$')
  local known = series and redis.pcall('HMGET', series_key(series), 'call', 'parked')
  if not known or known.err or not known[1] then return end
  local before = known[2] and known[2] ~= id and read(known[2], { 'started' })
  if before and before.state == 'waiting' and not before.started then
    redis.call('HINCRBY', series_key(series), 'missed', 1)
    finish(known[2], before, 'cancelled', math.min(keep_failed, KEPT_SKIPPED), 'error', MISSED)
  end
  redis.call('HSET', series_key(series), 'parked', id)
end

-- Puts a task into lanes.
local add_slots = uses_limits and function(id, lanes)
  for _, lane in ipairs(lanes) do
    change_lane('SADD', lane_key(lane), id)
    touched[lane] = true
  end
end

-- Notes in the record of a task in which lanes it has a slot now, and frees those that it had in others: its limits
-- may have changed since. It has no grant any longer.
local note_slots = uses_limits and function(id, record, lanes)
  local slots, is_kept = table.concat(lanes, '\n'), {}
  for _, lane in ipairs(lanes) do is_kept[lane] = true end
  if slots ~= '' then
    if slots ~= record.slots then redis.call('HSET', record_key(id), 'slots', slots) end
  elseif record.slots then
    redis.call('HDEL', record_key(id), 'slots')
  end
  if not record.slots then return end
  for lane in string.gmatch(record.slots, '[^\n]+') do
    if not is_kept[lane] then
      change_lane('SREM', lane_key(lane), id)
      touched[lane] = true
    end
  end
  redis.call('ZREM', grants_key(), id)
end

-- Makes a due task wait in a lane; `kept` are the lanes in which it keeps a slot meanwhile. Its first due time stays.
local park = uses_limits and function(id, record, due, lane, kept, tenant)
  -- One that has begun stays the only one of its ordered lane.
  for each in string.gmatch(record.started and record.slots or '', '[^\n]+') do
    local limit = limit_of(each)
    if limit and limit.ordered and each ~= kept[1] then kept = { each, unpack(kept) } end
  end
  add_slots(id, kept)
  due = string.format('%.0f', due)
  redis.call('ZADD', state_set('waiting'), due, id)
  change_lane('ZADD', queue_key(lane), due, id)
  redis.call('HSET', record_key(id), 'state', 'waiting', 'queue', lane, 'due', due,
    'parked', string.format('%.0f', now))
  if tenant then
    redis.call('HSET', record_key(id), 'tenant', tenant)
    join_queue(id, lane, tenant, due)
  end
  note_longest(id, lane)
  note_slots(id, record, kept)
  redis.call('ZREM', state_set('pending'), id)
  touched[lane] = true
  parked = parked + 1
end

-- Looks for a slot in each lane of a due task, in order. Returns the lane in which it is to wait, or nil; and the lanes
-- before that in which it has, or can have, a slot; and the rates of which it takes a start.
local find_slots = uses_limits and function(lanes, record)
  local has, taken, rates = {}, {}, {}
  for lane in string.gmatch(record.slots or '', '[^\n]+') do has[lane] = true end
  for _, lane in ipairs(lanes) do
    local limit = limit_of(lane)
    if limit and tonumber(limit.interval) then
      local is_turn = has[lane] or count_slots(lane) == 0 and count_queue(lane) == 0
      if not is_turn or next_start(lane, limit, 0) > now_us then return lane, taken, rates end
      rates[#rates + 1] = lane
    elseif limit then
      if not has[lane] and (count_slots(lane) >= (tonumber(limit.most) or 0) or count_queue(lane) > 0) then
        return lane, taken, rates
      end
      taken[#taken + 1] = lane
    end
  end
  return nil, taken, rates
end

-- Charges a start to a rate.
local charge = uses_limits and function(lane)
  local limit = limit_of(lane)
  change_lane('ZADD', rates_key(), string.format('%.0f', arrival_of(lane, limit) + limit.interval), lane)
end

-- Takes the slots of a task that is about to run. One that had a start of a rate gives the turn to the next.
local enter_lanes = uses_limits and function(id, record, taken, rates)
  for _, lane in ipairs(rates) do charge(lane) end
  add_slots(id, taken)
  note_slots(id, record, taken)
end
