-- include names
-- include clock
-- include state_sets
-- include lanes
-- include limits
-- include holds
-- include format

-- Grants free slots to the tasks that wait for them.

local SERVED_AT_ONCE = 100

-- Notes that a tenant has had its turn: the next one is later by a share, the less the more weight it has.
local take_turn = uses_limits and function(lane, tenant)
  local start = redis.call('ZSCORE', turns_key(lane), tenant)
  if not start then return end
  local weight = tonumber(redis.pcall('HGET', weights_key(), string.match(lane, '^[^=]*') .. ' ' .. tenant) or nil)
  local share = weight and weight > 0 and 1 / weight or 1
  redis.call('ZREMRANGEBYSCORE', shares_key(lane), '-inf', start)
  redis.call('ZADD', shares_key(lane), start, '')
  redis.call('ZINCRBY', turns_key(lane), string.format('%.17g', share), tenant)
end

-- The id that is next in a lane, or nil.
local first_in_line = uses_limits and function(lane)
  local tenant = redis.call('ZRANGE', turns_key(lane), 0, 0)[1]
  while tenant do
    local id = redis.call('ZRANGE', tenant_key(lane, tenant), 0, 0)[1]
    if id then return id end
    redis.call('ZREM', turns_key(lane), tenant)
    tenant = redis.call('ZRANGE', turns_key(lane), 0, 0)[1]
  end
  return redis.call('ZRANGE', queue_key(lane), 0, 0)[1]
end

-- Gives the first of a lane's queue a slot: it is pending, with its first due time, so that it is the first to be
-- claimed; for a rate, with the time of its start. False if it does not wait there.
local grant = uses_limits and function(lane, id, opening)
  local known = redis.pcall('HMGET', record_key(id), 'state', 'queue', 'slots', 'due', 'parked', 'waited', 'tenant')
  if known.err or known[1] ~= 'waiting' or known[2] ~= lane then
    redis.call('ZREM', queue_key(lane), id)
    return false
  end
  if known[7] then take_turn(lane, known[7]) end
  local due = math.max(tonumber(known[4]) or now, opening > now and opening or 0)
  local waited = (tonumber(known[6]) or 0) + math.max(opening - (tonumber(known[5]) or now), 0)
  redis.call('HSET', record_key(id), 'waited', string.format('%.0f', waited))
  if not is_hold(lane) then
    redis.call('HSET', record_key(id), 'slots', known[3] and known[3] .. '\n' .. lane or lane)
    change_lane('SADD', lane_key(lane), id)
    redis.call('ZADD', grants_key(), opening, id)
  end
  redis.call('ZADD', state_set('pending'), due, id)
  soonest = math.min(soonest, due)
  redis.call('HDEL', record_key(id), 'state', 'queue', 'parked')
  redis.call('ZREM', state_set('waiting'), id)
  leave_queue(id, lane, known[7])
  return true
end

-- How many this script gave.
local served = 0

-- Gives the slots that this script has freed to the first who wait for them.
local serve_freed = uses_limits and function()
  for lane in pairs(touched) do
    while served < SERVED_AT_ONCE do
      local opening = count_queue(lane) > 0 and opening_of(lane)
      if not opening then break end
      if grant(lane, first_in_line(lane), opening) then served = served + 1 end
    end
    local load, set = count_slots(lane) + count_queue(lane), is_hold(lane) and held_key() or lanes_key()
    if load > 0 then
      change_lane('ZADD', set, load, lane)
    else
      change_lane('ZREM', set, lane)
      redis.call('DEL', shares_key(lane))
    end
  end
  touched = {}
end
