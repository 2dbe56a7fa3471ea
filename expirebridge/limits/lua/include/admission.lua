-- include names
-- include clock
-- include lanes
-- include limits
-- include holds
-- include records
-- include format
-- include claims
-- include hooks
-- include lane_names
-- include lane_keys
-- when limits
-- on claim_fields 20 CLAIM_FIELDS
-- on before_taken 20 write_admitted
-- on on_claim 20 admit
-- on on_take 20 take_slots

-- Decides for a claim whether a due task has its slots, or waits for one.

local CLAIM_FIELDS = { 'slots', 'due', 'started', 'turn', 'lanes' }

-- Lanes of rates for whose start a task waits with its slots.
local holds_up = {}

-- The hold that keeps a task back, as the name of a lane; or nil.
local function hold_on(func, record)
  if any_hold == false then return nil end
  if is_held('all') then return HOLD .. 'all' end
  if is_held('func ' .. func) then return HOLD .. 'func ' .. func end
  if not any_hold then return nil end
  for tag in string.gmatch(record.tags or '', '%S+') do
    if is_held('tag ' .. tag) then return HOLD .. 'tag ' .. tag end
  end
  return nil
end

-- What a claim has decided and not written yet: by lane, the ids that enter it, and the places in its queue; the tasks
-- that wait from now on; and the ids whose grants are over.
local decided = { entering = {}, queueing = {}, waiting = {}, ungranted = {} }

-- Puts a task into lanes, and takes it out of others in which it had a slot: its limits may have changed since. It has
-- no grant any longer. Returns these lanes as they are to be written into its record; nil if they are there.
local function change_slots(id, record, lanes)
  local had, former = record.slots, NONE
  if had then
    former = {}
    for lane in string.gmatch(had, '[^\n]+') do former[lane] = true end
  end
  for _, lane in ipairs(lanes) do
    append(decided.entering, lane, id)
    if former[lane] then
      former[lane] = nil
    else
      counted.slots[lane] = count_slots(lane) + 1
      counted.reserved[lane] = nil
      touched[lane] = true
    end
  end
  for lane in pairs(former) do
    append(gone.lane, lane, id)
    counted.slots[lane] = count_slots(lane) - 1
    touched[lane] = true
  end
  if had then append(decided, 'ungranted', id) end
  local slots = lanes[2] and table.concat(lanes, '\n') or lanes[1] or ''
  return slots ~= (had or '') and slots or nil
end

-- A task whose turn it was in the lanes of rates, and that found no slot behind them, has been charged for its starts: its
-- field `turn` has a line for each, the arrival that was written then, and the lane. It has paid, and starts without a
-- further charge unless another was charged since, or the lane rests. Returns that arrival, or '-' if it has not paid; nil
-- if it had no turn there: one that had is the first there.
local function turn_in(lane, record)
  if not record.turn then return nil end
  for line in string.gmatch(record.turn, '[^\n]+') do
    local paid, other = string.match(line, '^(%S+) (.*)$')
    if other == lane then return paid end
  end
  return nil
end

local function has_paid(lane, record)
  local paid = turn_in(lane, record)
  local _, after_rest = rests(lane)
  return paid and tonumber(paid) == rate_score(lane) and after_rest <= now_us
end

-- Charges a task that takes so many microseconds of a rate. Returns the arrival as it is written.
local function charge(lane, record, takes)
  local arrival
  if has_paid(lane, record) then
    arrival = math.max(rate_score(lane), now_us + takes)
  else
    arrival = arrival_of(lane, limit_of(lane)) + takes
  end
  arrival = string.format('%.0f', arrival)
  change_lane('ZADD', own_key('rates'), arrival, lane)
  return arrival
end

-- Charges a task for its turn. One at a time has paid: `rates` has its arrival a second time, until another is charged.
-- Returns the arrival, or '-'.
local function pay_for_turn(lane, record, takes)
  local score = rate_score(lane)
  if score > now_us and rate_score('paid ' .. lane) == score then return '-' end
  local arrival = charge(lane, record, takes)
  redis.call('ZADD', own_key('rates'), arrival, 'paid ' .. lane)
  return arrival
end

-- The field `turn` of a task that waits for a slot, and has its turn in these rates.
local function pay_for_turns(rates, record)
  local lines = {}
  for i, rate in ipairs(rates) do
    local paid = has_paid(rate.lane, record) and turn_in(rate.lane, record)
    lines[i] = (paid or pay_for_turn(rate.lane, record, rate.takes)) .. ' ' .. rate.lane
  end
  return lines[1] and table.concat(lines, '\n') or nil
end

-- True if a task may keep its slots while it waits for the start of a rate: one in each lane, and not while that rests.
local function may_keep_slots(lane)
  if holds_up[lane] or rests(lane) then return false end
  local ids, first = change_lane('SRANDMEMBER', lane_key(lane), 20), change_lane('ZRANGE', queue_key(lane), 0, 0)[1]
  ids[#ids + 1] = first
  for _, id in ipairs(ids) do
    local slots = redis.pcall('HGET', record_key(id), 'slots')
    for each in string.gmatch(type(slots) == 'string' and slots or '', '[^\n]+') do
      if each ~= lane and not (limit_of(each) or {}).ordered then return false end
    end
  end
  holds_up[lane] = true
  return true
end

-- Makes a due task wait in a lane; `kept` are the lanes in which it keeps a slot, or what it reserved, meanwhile, and
-- `rates` those of which it had the turn. `known` is its field `lanes`. Its first due time stays.
local function park(id, record, due, lane, kept, tenant, rates, known)
  -- One that has begun stays the only one of its ordered lane.
  local all, is_kept = {}, {}
  for _, each in ipairs(kept) do is_kept[each] = true end
  for each in string.gmatch(record.started and record.slots or '', '[^\n]+') do
    local limit = limit_of(each)
    if limit and limit.ordered and not is_kept[each] then all[#all + 1] = each end
  end
  for _, each in ipairs(kept) do all[#all + 1] = each end
  local turn = pay_for_turns(rates, record)
  -- Those that have had their turn come before all others.
  local place = string.format('%.0f', turn_in(lane, record) and due - 2 ^ 52 or due)
  due = string.format('%.0f', due)
  append(decided, 'waiting', { id, lane, due, tenant or false, change_slots(id, record, all) or false,
    turn or false, record.slots and not tenant, known ~= record.lanes and known })
  append(decided.queueing, lane, place, id)
  counted.queue[lane] = count_queue(lane) + 1
  touched[lane] = true
  parked = parked + 1
end

-- Writes that; the places of those that run from now on are written afterwards. The destination first, the source last.
local function write_admitted()
  local entering, queueing, waiting, ungranted = decided.entering, decided.queueing, decided.waiting, decided.ungranted
  decided = { entering = {}, queueing = {}, waiting = {}, ungranted = {} }
  for lane, ids in pairs(entering) do change_lane('SADD', lane_key(lane), unpack(ids)) end
  if ungranted[1] then redis.call('ZREM', own_key('grants'), unpack(ungranted)) end
  if not waiting[1] then return end
  local ids, places, parked_at = {}, {}, string.format('%.0f', now)
  for i, task in ipairs(waiting) do ids[i], places[2 * i - 1], places[2 * i] = task[1], task[3], task[1] end
  redis.call('ZADD', state_set('waiting'), unpack(places))
  for lane, those in pairs(queueing) do
    change_lane('ZADD', queue_key(lane), unpack(those))
    note_longest(lane, those)
  end
  for _, task in ipairs(waiting) do
    local id, lane, due, tenant, slots, turn, had_tenant, known = unpack(task, 1, 8)
    local fields = { 'state', 'waiting', 'queue', lane, 'due', due, 'parked', parked_at }
    if tenant then
      fields[9], fields[10] = 'tenant', tenant
      join_queue(id, lane, tenant, due)
    end
    -- One that had a slot may have the tenant that waited for it.
    if had_tenant then redis.call('HDEL', record_key(id), 'tenant') end
    if slots == '' then
      redis.call('HDEL', record_key(id), 'slots')
    elseif slots then
      fields[#fields + 1], fields[#fields + 2] = 'slots', slots
    end
    if turn then fields[#fields + 1], fields[#fields + 2] = 'turn', turn end
    if known then fields[#fields + 1], fields[#fields + 2] = 'lanes', known end
    redis.call('HSET', record_key(id), unpack(fields))
  end
  redis.call('ZREM', state_set('pending'), unpack(ids))
end

-- True if a task that is about to run has no slot in a lane, and finds none. One that was granted when the number was
-- higher is taken back: nothing starts above the number.
local function lacks_slot(lane, limit, has, record)
  local most = tonumber(limit.most) or 0
  if has then return not limit.ordered and count_slots(lane) > most end
  return count_slots(lane) >= most or count_queue(lane) > 0 or limit.ordered and is_closed(lane, record.tick or false)
end

-- Looks for a slot in each lane of a due task, in order. Returns the lane in which it is to wait, or nil; the lanes in
-- which it has a slot meanwhile, or can have one; and the rates of which it takes a start, each with its lane and the
-- microseconds that it takes.
--
-- A task keeps what it has in the lanes before the one that lacks: so there is no circle. While it waits for another
-- rate, which time alone frees, it keeps what it has reserved in the rates before; while it waits for a slot, it has paid
-- for them. One task keeps the slots that it has behind a rate, too.
local function find_slots(lanes, costs, record)
  local has, taken, rates = NONE, {}, NONE
  if record.slots then
    has = {}
    for lane in string.gmatch(record.slots, '[^\n]+') do has[lane] = true end
  end
  for place, lane in ipairs(lanes) do
    local limit = limit_of(lane)
    if limit and limit.interval then
      local takes = time_of(limit, costs[lane])
      local is_turn = has[lane] or turn_in(lane, record) or count_slots(lane) == 0 and count_queue(lane) == 0
      if not has_paid(lane, record) and (not is_turn or next_start(lane, limit, takes, 0) > now_us) then
        -- One that rests must not hold up the rates before it; but a debt, which `spend` leaves whenever the lane is full, is
        -- paid as soon as any start.
        for _, rate in ipairs(rests(lane, limit.span) and NONE or rates) do
          taken[#taken + 1] = rate.lane
          touched[rate.lane] = true
        end
        local keeps
        for behind = place + 1, #lanes do
          if has[lanes[behind]] and not (limit_of(lanes[behind]) or NONE).interval then
            if keeps == nil then keeps = may_keep_slots(lane) end
            if keeps then taken[#taken + 1] = lanes[behind] end
          end
        end
        return lane, taken, NONE
      end
      if rates == NONE then rates = {} end
      rates[#rates + 1] = { lane = lane, takes = takes }
    elseif limit then
      if lacks_slot(lane, limit, has[lane], record) then return lane, taken, rates end
      taken[#taken + 1] = lane
    end
  end
  return nil, taken, rates
end

-- Takes the slots of a task that is about to run. One that had a start of a rate gives the turn to the next. Returns what
-- `change_slots` does, and what its record gets of its charges: when it starts, and for each a line of the arrival, the
-- microseconds and the lane.
local function enter_lanes(id, record, taken, rates)
  local charges = { string.format('%.0f', now) }
  for i, rate in ipairs(rates) do
    charges[i + 1] = string.format('%s %.0f %s', charge(rate.lane, record, rate.takes), rate.takes, rate.lane)
  end
  return change_slots(id, record, taken), charges[2] and table.concat(charges, '\n')
end

-- The lanes and rates of a due task whose turn it is; nil if it was made to wait.
local function lanes_to_enter(id, record, due)
  local func = string.match(record.call, '^[^?]*')
  local lane, given, rates, tenant = hold_on(func, record), NONE, NONE, nil
  local limits = limits_of(func)
  if not lane and not limits then return NONE, NONE end
  local lanes, tenants, costs, known = NONE, NONE, NONE, nil
  if limits then lanes, tenants, costs, known = lanes_of(limits, record) end
  -- Its ordered lane, if it has no slot there.
  local order = lanes[1] and (limit_of(lanes[1]) or NONE).ordered and lanes[1]
  if order and string.match(record.slots or '', '^[^\n]*') == order then order = nil end
  if not lane then
    -- What is behind others that it has not looked at may be behind one of its own lane.
    if order and not from_front then
      skipped = skipped + 1
      for i = 1, #on_skip do on_skip[i](id) end
      return nil
    end
    lane = order and hold_before(order)
    if not lane then
      lane, given, rates = find_slots(lanes, costs, record)
      tenant, order = tenants[lane], nil
    end
  end
  tenant = order or tenant
  if not lane then return given, rates end
  if record.tick then
    write_admitted()
    for i = 1, #on_park do on_park[i](id, record, keep_failed) end
  end
  park(id, record, due, lane, given, tenant, rates, known)
  return nil
end

-- What a task has waited for slots is told of its latest due time alone.
local function forget_waited(id, record)
  redis.call('HDEL', record_key(id), 'waited')
  record.waited = nil
  return false
end

local function admit(id, record, values, score)
  local due = tonumber(score)
  -- Of one that was granted a slot, the first due time is in its record.
  local first_due = record.slots and tonumber(record.due) or due
  if first_due < due and is_granted(id) then due, score = first_due, record.due end
  if record.waited and tonumber(record.due) ~= due then values[LAST] = forget_waited(id, record) end
  local slots, rates = lanes_to_enter(id, record, due)
  if not slots then return nil end
  if slots[1] or rates[1] or record.slots then record.entering = { slots, rates } end
  return score
end

local function take_slots(id, record, set, gone)
  local entering = record.entering
  local slots, charges
  if entering then slots, charges = enter_lanes(id, record, entering[1], entering[2]) end
  if slots == '' then
    gone[#gone + 1] = 'slots'
  elseif slots then
    set[#set + 1], set[#set + 2] = 'slots', slots
  end
  if charges then set[#set + 1], set[#set + 2] = 'charged', charges end
  if record.turn then gone[#gone + 1] = 'turn' end
end
