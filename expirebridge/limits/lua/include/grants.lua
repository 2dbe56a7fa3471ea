-- include names
-- include clock
-- include records
-- include lanes
-- include limits
-- include format
-- include ring
-- include hooks
-- include fleet
-- include state_sets
-- include lane_keys
-- gives SERVED_AT_ONCE, note_waited, served, serve_others, has_runner, leave_line
-- when limits
-- on at_end 20 serve_freed
-- on on_left 20 serve_others

-- Grants free slots to the tasks that wait for them.

local SERVED_AT_ONCE = 100
-- When the first of the tasks was due that may start at once, since they were given a slot. The listener that freed the
-- slots claims some of them without a ring: nobody else is woken for these.
local first_ready = math.huge

-- The field `waited` of a task that has waited in a lane since `parked`, until a moment; `before` is the field so far.
local function waited_until(moment, lane, parked, before)
  local all, held = string.match(before or '', '^(%d+) ?(%d*)')
  local wait = math.max(moment - (number_up_to(now, parked) or now), 0)
  local waited = string.format('%.0f', (number_up_to(now, all) or 0) + wait)
  held = (number_up_to(now, held) or 0) + (is_hold(lane) and wait or 0)
  return held > 0 and waited .. string.format(' %.0f', held) or waited
end

-- Notes for how long a task has waited that waits no longer.
local function note_waited(id)
  local known = redis.call('HMGET', record_key(id), 'queue', 'parked', 'waited')
  redis.call('HSET', record_key(id), 'waited', waited_until(now, known[1] or '', known[2], known[3]))
end

-- How many this script gave, or let go.
local served = 0

-- The ordered lanes into which this script has let tasks go.
local joined = {}

-- Notes that a tenant has had its turn: the next one is later by a share, the less the more weight it has.
local function take_turn(lane, tenant)
  local start = change_lane('ZSCORE', turns_key(lane), tenant)
  if not start then return end
  local weight = tonumber(redis.pcall('HGET', own_key('weights'), string.match(lane, '^[^=]*') .. ' ' .. tenant) or nil)
  local share = weight and weight > 0 and 1 / weight or 1
  change_lane('ZREMRANGEBYSCORE', shares_key(lane), '-inf', start)
  redis.call('ZADD', shares_key(lane), start, '\n')
  redis.call('ZINCRBY', turns_key(lane), string.format('%.17g', share), tenant)
end

-- Writes who was given a slot, the destination first and the source last.
local function write_grants(lane, given)
  local ids = given.ids
  if not ids[1] then return end
  if not is_hold(lane) then
    change_lane('SADD', lane_key(lane), unpack(ids))
    redis.call('ZADD', own_key('grants'), unpack(given.granted))
  end
  local pace = counted.pace[lane]
  if pace then redis.call('HSET', own_key('limits'), 'p ' .. lane, string.format('%.3f %.3f', pace.at, pace.each)) end
  for i = 1, #on_served do on_served[i](given.due) end
  redis.call('ZADD', state_set('pending'), unpack(given.due))
  for i, id in ipairs(ids) do
    redis.call('HSET', record_key(id), unpack(given.fields[i]))
    redis.call('HDEL', record_key(id), 'state', 'queue', 'parked')
  end
  redis.call('ZREM', state_set('waiting'), unpack(ids))
  leave_queue(lane, ids)
  given.ids, given.due, given.granted, given.fields = {}, {}, {}, {}
end

-- The first that waits in a lane, behind those that were given a slot; or nil.
local function first_in_line(lane, given)
  if not given.heads[1] then
    local from, at_once = #given.ids, 10
    given.heads = change_lane('ZRANGE', queue_key(lane), from, from + at_once - 1)
  end
  return given.heads[1]
end

-- The id that is next in a lane, behind those that were given a slot; or nil. Second, its tenant, if it is fair.
local function next_in_line(lane, given)
  local tenant = given.by_turn and change_lane('ZRANGE', turns_key(lane), 0, 0)[1]
  while tenant do
    local id = change_lane('ZRANGE', tenant_key(lane, tenant), 0, 0)[1]
    if id then return id, tenant end
    redis.call('ZREM', turns_key(lane), tenant)
    tenant = change_lane('ZRANGE', turns_key(lane), 0, 0)[1]
  end
  if given.by_turn then
    -- Those that have no tenant came before the limit was fair.
    given.by_turn = false
    write_grants(lane, given)
  end
  local id = first_in_line(lane, given)
  table.remove(given.heads, 1)
  return id
end

-- Lets a task go from a hold to its ordered lane: there it waits if others do, one has its slot, or none begins. Of
-- those that go over a time it takes the slot, or those behind it would overtake it. True if it is pending now;
-- second, its slots.
local function let_into_order(hold, id, known, due)
  local lane, slots = known[7], known[3]
  leave_tenant(hold, lane, id)
  redis.call('HDEL', record_key(id), 'tenant')
  local has_slot = string.find('\n' .. (slots or '') .. '\n', '\n' .. lane .. '\n', 1, true)
  if has_slot or not (limit_of(lane) or {}).ordered then return true end
  if count_slots(lane) > 0 or count_queue(lane) > 0 or is_closed(lane, known[8]) then
    local first_due = number_up_to(now, known[4]) or now
    -- Before it is written, or it would be counted twice.
    counted.queue[lane] = count_queue(lane) + 1
    change_lane('ZADD', queue_key(lane), first_due, id)
    redis.call('HSET', record_key(id), 'queue', lane, 'parked', now,
      'waited', waited_until(now, hold, known[5], known[6]))
    note_longest(lane, { first_due, id })
    joined[lane] = true
    return false
  end
  if not counted.pace[hold] then return true end
  change_lane('SADD', lane_key(lane), id)
  redis.call('ZADD', own_key('grants'), due, id)
  counted.slots[lane] = 1
  change_lane('ZINCRBY', own_key('lanes'), 1, lane)
  return true, slots and lane .. '\n' .. slots or lane
end

-- False if several codes run, and none of them has a task's function: it would keep a slot for a lease, while others
-- wait that could run. If one code runs, it is claimed, and returned at once. Whatever claims take has one, or it would
-- be made to wait and let go again for ever: also what nobody has had for a day, which fails, and anything at all while
-- a code has no declaration.
local runners = {}
local function has_runner(id)
  if not string.find(fleet_code or '', ' ', 1, true) then return true end
  local known = redis.call('HMGET', record_key(id), 'call', 'unknown')
  local func, unknown = string.match(known[1] or '', '^[^?]+'), number_up_to(now, known[2])
  if not func or unknown and now - unknown >= UNKNOWN_TIMEOUT then return true end
  if runners[func] == nil then
    runners[func] = others_can_run(func, '', '')
    for fingerprint in string.gmatch(fleet_code, '%x+') do
      if type(redis.pcall('HGET', code_key(fingerprint), '#')) ~= 'string' then runners[func] = true end
    end
  end
  return runners[func]
end

-- Lets a waiting task be pending since its first due time, without the slot for which it waits: claims pass over it, or
-- find its lanes.
local function leave_line(id, record, first_due)
  note_waited(id)
  move(id, record, 'pending', first_due)
end

-- Gives the next of a lane's queue a slot: it is pending, with its first due time, so that it is the first to be
-- claimed; for a rate, with the time of its start. False if it does not wait there.
local function grant(lane, id, tenant, given, opening)
  local known = redis.pcall('HMGET', record_key(id), 'state', 'queue', 'slots', 'due', 'parked', 'waited',
    'tenant', 'tick')
  local waits = not known.err and known[1] == 'waiting' and known[2] == lane
  -- In an ordered lane nobody is passed over.
  local is_left = waits and not is_hold(lane) and not (limit_of(lane) or {}).ordered and not has_runner(id)
  if is_left then
    leave_line(id, read(id), number_up_to(now, known[4]) or now)
    served = served + 1
  elseif tenant then
    if waits then take_turn(lane, tenant) end
    leave_tenant(lane, tenant, id)
  end
  if is_left or not waits then
    counted.queue[lane] = count_queue(lane) - change_lane('ZREM', queue_key(lane), id)
    return false
  end
  local due = math.max(number_up_to(now, known[4]) or now, opening > now and opening or 0)
  local pace, slots = counted.pace[lane], nil
  if is_hold(lane) and known[7] then
    local is_pending
    is_pending, slots = let_into_order(lane, id, known, due)
    if not is_pending then
      counted.queue[lane] = count_queue(lane) - change_lane('ZREM', queue_key(lane), id)
      served = served + 1
      return false
    end
  end
  local fields = { 'waited', waited_until(opening, lane, known[5], known[6]) }
  if slots then fields[3], fields[4] = 'slots', slots end
  if pace then
    -- A due time of its own, with a timer, as if it had been rescheduled. One that a client set meanwhile counts.
    local record = due > now and read(id)
    if record and not read_timer(id, record) then set_timer(id, record, due) end
    for i = 1, record and #on_revise or 0 do on_revise[i](id, record) end
    pace.at = pace.at + pace.each
  end
  if not is_hold(lane) then fields[3], fields[4] = 'slots', known[3] and known[3] .. '\n' .. lane or lane end
  append(given, 'ids', id)
  append(given, 'fields', fields)
  append(given, 'due', due, id)
  append(given, 'granted', opening, id)
  if opening > now then
    soonest = math.min(soonest, due)
  else
    ready_now, first_ready = ready_now + 1, math.min(first_ready, due)
  end
  return true
end

-- Gives the free slots of a lane to the first who wait for them.
local function serve_lane(lane)
  if count_queue(lane) == 0 then return end
  -- Those that were given a slot and are not written yet: `ids`; their due times and the times of their grants, each
  -- followed by the id; the `fields` of their records; and the next `heads` of the queue.
  local given = { ids = {}, due = {}, granted = {}, fields = {}, heads = {} }
  given.by_turn = redis.call('EXISTS', turns_key(lane)) == 1
  while served < SERVED_AT_ONCE and count_queue(lane) > 0 do
    local opening = opening_of(lane, not given.by_turn and first_in_line(lane, given) or nil)
    if not opening then break end
    local id, tenant = next_in_line(lane, given)
    if not id then break end
    if grant(lane, id, tenant, given, opening) then
      served = served + 1
      counted.queue[lane] = count_queue(lane) - 1
      if not is_hold(lane) then
        counted.slots[lane] = count_slots(lane) + 1
        counted.granted[lane] = true
        local sum = counted.reserved[lane]
        counted.reserved[lane] = sum and sum + taken_by(id, lane, limit_of(lane))
      end
    end
  end
  write_grants(lane, given)
end

-- Takes over lanes that scripts before this one did not come to.
local function serve_others()
  for _, lane in ipairs(change_lane('SPOP', own_key('unserved'), SERVED_AT_ONCE)) do touched[lane] = true end
end

-- Gives the slots that this script has freed to the first who wait for them. What it does not come to is left to the
-- next claim: true if there is something.
local function serve_freed()
  local unserved = {}
  local function serve(lane)
    serve_lane(lane)
    if served >= SERVED_AT_ONCE and count_queue(lane) > 0 and opening_of(lane) then unserved[#unserved + 1] = lane end
    local load, set = count_slots(lane) + count_queue(lane), is_hold(lane) and own_key('held') or own_key('lanes')
    if load > 0 then
      change_lane('ZADD', set, load, lane)
    else
      change_lane('ZREM', set, lane)
      redis.call('DEL', shares_key(lane))
    end
    -- A release over a time ends when nothing is left, and with the next hold.
    if is_hold(lane) and (load == 0 or not opening_of(lane)) then redis.pcall('HDEL', own_key('limits'), 'p ' .. lane) end
  end
  -- Those that it passes over leave other lanes.
  repeat
    write_leaving()
    local changed = touched
    touched = {}
    for lane in pairs(changed) do serve(lane) end
    for lane in pairs(joined) do serve(lane) end
    joined = {}
  until not next(touched)
  if ready_now > claims_next then soonest = math.min(soonest, first_ready) end
  if not unserved[1] then return false end
  change_lane('SADD', own_key('unserved'), unpack(unserved))
  soonest = math.min(soonest, now)
  return true
end
