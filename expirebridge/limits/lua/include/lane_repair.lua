-- include names
-- include clock
-- include records
-- include state_sets
-- include lanes
-- include limits
-- include holds
-- include lane_names
-- include format
-- include ring
-- include grants
-- include hooks
-- include lane_keys
-- when limits
-- on on_sweep 20 sweep_lanes
-- on on_swept 20 tell_swept

-- The sweep's part in limits: grants that nobody took, waits that are too long, and places that are wrong.

local LANES_AT_ONCE, MEMBERS_AT_ONCE, HOLDS_AT_ONCE, WAITING_AT_ONCE = 50, 20, 200, 50
local NOT_TAKEN = 'no listener took it while it had its slot'
-- Places in lanes that were wrong: an interrupted script, or another client.
local mended = 0
-- True while the lanes, or the tasks that wait, are looked at after a change of limits.
local is_hurried = false

-- Takes one of its slots from a task.
local function drop_slot(id, slots, lane)
  local has_others = drop_slots(id, slots, function(each) return each == lane end)
  if not has_others then redis.call('ZREM', own_key('grants'), id) end
end

-- Takes a task that no listener can run out of its lanes; it was due when its rate had no start yet, too.
local function leave_unrun(id)
  local due = number_up_to(now, redis.call('HGET', record_key(id), 'due')) or now
  redis.call('ZADD', state_set('pending'), 'XX', 'LT', due, id)
  leave_lanes(id, 'ordered')
end

-- A grant holds for a lease. What nobody took waits again, behind all others.
local function take_back(id)
  local known = redis.pcall('HMGET', record_key(id), 'slots', 'state', 'due', 'tenant')
  redis.call('ZREM', own_key('grants'), id)
  if known.err or not known[1] or known[2] then return end
  local lane = string.match(known[1], '^.*\n(.*)') or known[1]
  local limit = limit_of(lane) or {}
  -- In an ordered lane nobody is passed over.
  if limit.ordered then return end
  if not has_runner(id) then return leave_unrun(id) end
  -- One that never waited has no tenant yet: the next claim finds its turn. What else it has it keeps, for a lease.
  if limit.fair and not known[4] then
    if known[1] ~= lane then redis.call('ZADD', own_key('grants'), now, id) end
    return drop_slot(id, known[1], lane)
  end
  redis.call('ZADD', state_set('waiting'), number_up_to(now, known[3]) or now, id)
  change_lane('ZADD', queue_key(lane), now, id)
  counted.queue[lane] = nil
  redis.call('HSET', record_key(id), 'state', 'waiting', 'queue', lane, 'parked', now, 'error', NOT_TAKEN)
  if limit.fair then join_queue(id, lane, known[4], now) end
  note_longest(lane, { now, id })
  drop_slot(id, known[1], lane)
  redis.call('ZREM', state_set('pending'), id)
end

local function fail_waiting(id, keep_failed)
  redis.call('ZREM', own_key('waits'), id)
  local record = read(id, { 'queue', 'parked' })
  local longest = record and record.state == 'waiting' and record.queue and longest_in(record.queue)
  if not longest then return end
  -- The limit may allow a longer wait than when this one began.
  local ends = (tonumber(record.parked) or 0) + longest
  if ends > now then return redis.call('ZADD', own_key('waits'), ends, id) end
  finish(id, record, 'failed', keep_failed, 'error',
    'waited longer than ' .. string.format('%.14g', longest / 1000) .. ' s for a slot of ' .. record.queue)
end

-- Brings forward the starts that were granted before a rate was raised, or became nothing; but not before what others
-- have reserved there.
local function bring_forward(lane, id, slots)
  -- It may have its turn here, and await a start of the next rate.
  if (string.match(slots, '^.*\n(.*)') or slots) ~= lane then return end
  local limit = limit_of(lane)
  -- One of an ordered lane was let go over a time by a hold.
  if limit and limit.ordered then return end
  local score = is_granted(id) and tonumber(redis.call('ZSCORE', state_set('pending'), id) or nil)
  if not score then return end
  local start = now
  if limit and limit.interval then
    local takes = taken_by(id, lane, limit)
    start = math.ceil(next_start(lane, limit, takes, reserved_in(lane, limit) - takes) / 1000)
  end
  if score <= start + AHEAD then return end
  -- Its timer, too, unless another client has set that.
  local record = read(id)
  local ends = record and read_timer(id, record)
  if ends and (ends == 'none' or math.abs(ends - score) > 2) then return end
  if ends then set_timer(id, record, start) end
  redis.call('ZADD', state_set('pending'), 'XX', start, id)
  redis.call('ZADD', own_key('grants'), 'XX', start, id)
  soonest = math.min(soonest, start)
end

-- True if the function of a task was declared, and has a lane no longer.
local function has_given_up(id, lane)
  local record = read(id, { 'args' })
  local func = record and string.match(record.call, '^[^?]*')
  if not func or redis.pcall('HEXISTS', own_key('limits'), 'f ' .. func) ~= 1 then return false end
  for _, each in ipairs((lanes_of(limits_of(func) or NONE, record))) do
    if each == lane then return false end
  end
  return true
end

-- True if what waits in a lane for the start of another rate cannot have that soon: then it holds up no rate before it.
local function waits_at_rest(lane)
  local limit = limit_of(lane) or NONE
  return not limit.interval or rests(lane, limit.span)
end

-- Removes ids that do not have a slot by their records, and serves the queue. `load` is how many tasks the lane has, as
-- was noted; `is_changed` after a change of limits.
local function mend_lane(lane, load, is_changed)
  local stay = {}
  for _, id in ipairs(change_lane('SRANDMEMBER', lane_key(lane), MEMBERS_AT_ONCE)) do
    local known = redis.pcall('HMGET', record_key(id), 'slots', 'state', 'queue')
    local is_over = FINISHED[known[2]] and not (known[2] == 'failed' and (limit_of(lane) or {}).blocks)
    local has = not known.err and not is_over
      and string.find('\n' .. (known[1] or '') .. '\n', '\n' .. lane .. '\n', 1, true)
    local limit = limit_of(lane)
    if has and is_changed and known[2] ~= 'running' and has_given_up(id, lane) then
      drop_slot(id, known[1], lane)
    elseif has and limit and not limit.ordered and not known[2] and not is_granted(id) then
      leave_lanes(id, 'ordered') -- it was kept while the limit was lost
    elseif has and not (limit and limit.ordered) and not known[2] and not has_runner(id) then
      leave_unrun(id)
    elseif has and known[2] == 'waiting' and limit and limit.interval and waits_at_rest(known[3] or '') then
      drop_slot(id, known[1], lane)
    elseif has then
      stay[#stay + 1] = { id, known[1] }
    else
      append(gone.lane, lane, id)
      touched[lane] = true
      mended = mended + 1
    end
  end
  write_leaving() -- what these had reserved is free
  for _, one in ipairs(stay) do bring_forward(lane, one[1], one[2]) end
  local waiting = count_queue(lane)
  if tonumber(load) ~= count_slots(lane) + waiting and not touched[lane] then
    touched[lane] = true
    mended = mended + 1
  end
  if waiting > 0 and opening_of(lane) then touched[lane] = true end
end

-- True if a task is in the queue that its record names and, if the lane is fair, in that of its tenant, whose turn comes.
local function is_queued(id)
  local known = redis.pcall('HMGET', record_key(id), 'queue', 'tenant')
  local lane, tenant = known[1], known[2]
  if known.err or not lane or not change_lane('ZSCORE', queue_key(lane), id) then return false end
  return not tenant or not (limit_of(lane) or {}).fair
    or change_lane('ZSCORE', tenant_key(lane, tenant), id) and change_lane('ZSCORE', turns_key(lane), tenant)
end

-- Lets tasks be claimed anew that wait in a lane that their function has given up.
local function leave_given_up(id)
  local known = redis.pcall('HMGET', record_key(id), 'queue', 'due')
  if known.err or not known[1] or is_hold(known[1]) or not has_given_up(id, known[1]) then return end
  leave_line(id, read(id), number_up_to(now, known[2]) or now)
end

-- Lets tasks be claimed anew that no queue has: nobody would ever grant them a slot. Another client has changed the
-- queue, or the record. After a change of limits it looks for others, too.
local function requeue_lost(cursor, keep_failed, is_changed)
  local page = redis.call('ZSCAN', state_set('waiting'), cursor, 'COUNT', WAITING_AT_ONCE)
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if not is_queued(id) then
      local record = read(id)
      if not record then
        fail_broken(id, 'waiting', keep_failed)
      elseif not repair_place(id, record, 'waiting', keep_failed) then
        move(id, record, 'pending', number_up_to(now, page[2][i + 1]))
      end
      mended = mended + 1
    elseif is_changed then
      leave_given_up(id)
    end
  end
  return page[1]
end

-- Removes arrivals that have passed, which say no more than none would. After a rest, the arrival that follows from it
-- is the lane's own.
local function forget_past_rates()
  local names, kept, past = redis.call('ZRANGEBYSCORE', own_key('rates'), '-inf', now_us, 'LIMIT', 0, 1000), {}, {}
  for _, name in ipairs(names) do
    local lane = string.match(name, '^rest (.+)$')
    local limit = lane and limit_of(lane)
    local arrival = limit and limit.interval and arrival_of(lane, limit) or 0
    if arrival > now_us then
      redis.call('ZADD', own_key('rates'), string.format('%.0f', arrival), lane)
      kept[lane] = true
    end
  end
  for _, name in ipairs(names) do
    if not kept[name] then past[#past + 1] = name end
  end
  if past[1] then redis.call('ZREM', own_key('rates'), unpack(past)) end
end

-- Removes the holds that are over, and lets go what they held.
local function forget_ended_holds()
  local fields = redis.pcall('HGETALL', own_key('holds'))
  for i = 1, #fields, 2 do
    local ends = end_of_hold(fields[i + 1])
    if ends and ends <= now then
      redis.call('HDEL', own_key('holds'), fields[i])
      touched[HOLD .. fields[i]] = true
    end
  end
end

-- Where a scan continues: what another client may have written there begins anew.
local function cursor_of(stored) return stored and #stored < 20 and string.match(stored, '^%d+$') or '0' end

-- A digest of the numbers that were set; false if there are none. More than so many are not looked at.
local MOST_NUMBERS = 1000
local function digest_of_numbers(before)
  if not look_around() then return false end
  local count = redis.pcall('HLEN', own_key('numbers'))
  if type(count) ~= 'number' or count > MOST_NUMBERS then return before end
  return redis.sha1hex(table.concat(redis.call('HGETALL', own_key('numbers')), '\n'))
end

-- True if another client has changed numbers: then the sweeps go over all lanes at once.
local function note_numbers(before)
  local digest = digest_of_numbers(before)
  if digest == before then return false end
  redis.call('HSET', own_key('limits'), 'numbers', digest or '', 'changed', now)
  if not digest then redis.call('HDEL', own_key('limits'), 'numbers') end
  return true
end

local function mend_lanes(lease, keep_failed)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', own_key('grants'), '-inf', now - lease, 'LIMIT', 0, 100)) do
    take_back(id)
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', own_key('waits'), '-inf', now, 'LIMIT', 0, 100)) do
    fail_waiting(id, keep_failed)
  end
  write_leaving()
  forget_past_rates()
  -- Any of them: those that stay on hold must not keep others from their turn.
  for _, lane in ipairs(change_lane('ZRANDMEMBER', own_key('held'), HOLDS_AT_ONCE)) do
    if opening_of(lane) then touched[lane] = true end
  end
  local known = redis.pcall('HMGET', own_key('limits'), 'cursor', 'changed', 'waiting', 'changed waiting', 'numbers')
  if known.err then return end
  if note_numbers(known[5]) then known[1], known[2] = '0', true end
  local page = change_lane('ZSCAN', own_key('lanes'), cursor_of(known[1]), 'COUNT', LANES_AT_ONCE)
  for i = 1, #page[2], 2 do mend_lane(page[2][i], page[2][i + 1], known[2]) end
  local waiting = requeue_lost(cursor_of(known[3]), keep_failed, known[4])
  redis.call('HSET', own_key('limits'), 'cursor', page[1], 'waiting', waiting)
  if known[2] and page[1] == '0' then redis.call('HDEL', own_key('limits'), 'changed') end
  if known[4] and waiting == '0' then redis.call('HDEL', own_key('limits'), 'changed waiting') end
  is_hurried = known[2] and page[1] ~= '0' or known[4] and waiting ~= '0'
end

local function sweep_lanes(_, lease, keep_failed)
  serve_others()
  mend_lanes(lease, keep_failed)
  forget_ended_holds()
end

local function tell_swept(found)
  found.is_more = found.is_more or served >= SERVED_AT_ONCE or is_hurried
  found.mended = mended
end
