-- include claims
-- include clock
-- include format
-- include holds
-- include hooks
-- include lane_names
-- include limits
-- include names
-- include records
-- include state_sets
-- when limits
-- on on_crowded 20 take_others

-- While many are made to wait, others are looked at besides: those that were granted a slot, so many of the newest, and
-- so many behind those that the claim before this one looked at. What can run does not wait until all of them do.
local FRESH, BEHIND = MOST_PARKED, 5 * MOST_PARKED

-- True if a due task would have to wait behind others that do so already: it is made to wait later, from the front.
local function is_behind_many(id, func, limits, call)
  if is_held('all') then return count_queue(HOLD .. 'all') > 0 end
  if is_held('func ' .. func) then return count_queue(HOLD .. 'func ' .. func) > 0 end
  local record = { call = call }
  if string.sub(call, -1) == '@' then
    local known = redis.pcall('HMGET', record_key(id), 'args', 'lanes')
    record.args, record.lanes = known[1] or nil, known[2] or nil
  end
  for _, lane in ipairs((lanes_of(limits, record))) do
    if count_queue(lane) > 0 then return true end
  end
  return false
end

local function is_full()
  return claimed >= places or bytes >= max_bytes or alone or reply[3] ~= 0 or meets_blocked or parked >= 2 * MOST_PARKED
end

local function take_granted()
  for _, id in ipairs(redis.call('ZRANGE', own_key('grants'), '-inf', now, 'BYSCORE', 'LIMIT', 0, FRESH)) do
    if is_full() then return end
    local score = redis.call('ZSCORE', state_set('pending'), id)
    if score and tonumber(score) <= now then take_if_due(id, score) end
  end
end

-- Takes those of these tasks that need not wait behind many. Returns the number that it has looked at.
local function take_some(ids, only_without_limit)
  for i = 1, #ids, 2 do
    if is_full() then return (i - 1) / 2 end
    local known = redis.pcall('HMGET', record_key(ids[i]), 'call', 'slots', 'turn')
    local call, has_slot = known[1], known[2] or known[3]
    local func = call and string.match(call, '^[^?]*')
    local limits = func and limits_of(func) or NONE
    if func and not (limits[1] and only_without_limit)
      and (has_slot or not is_behind_many(ids[i], func, limits, call)) then
      take_if_due(ids[i], ids[i + 1])
    end
  end
  return #ids / 2
end

local function take_others()
  local set = state_set('pending')
  from_front = false
  take_granted()
  write_taken() -- one may be among the newest
  take_some(redis.call('ZRANGE', set, now, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, FRESH, 'WITHSCORES'), true)
  write_taken()
  local stored = redis.pcall('HGET', own_key('limits'), 'behind')
  local score, id = string.match(type(stored) == 'string' and stored or '', '^(%d+) (.+)$')
  local from, upto = score and rank_behind(set, score, id) or 0, redis.call('ZCOUNT', set, '-inf', now)
  if from < upto then
    local ids = redis.call('ZRANGE', set, from, math.min(from + BEHIND, upto) - 1, 'WITHSCORES')
    local seen = take_some(ids, false)
    if seen > 0 then redis.call('HSET', own_key('limits'), 'behind', whole(ids[2 * seen], 0) .. ' ' .. ids[2 * seen - 1]) end
  end
  write_taken()
end
