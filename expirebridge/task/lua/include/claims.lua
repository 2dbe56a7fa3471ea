-- include names
-- include clock
-- include records
-- include state_sets
-- include timer_edits
-- include tick_claims
-- include admission
-- include lanes
-- include limits
-- include format
-- include lane_names
-- gives is_ledger_blocked, places, max_bytes, keep_failed, resend, listeners, held, reply, bytes, claimed, alone
-- gives meets_blocked, SHARE, whole, look_ahead, write_taken, share_of, from_front, skipped, take_if_due
-- gives lacks_limits, find_claimed

-- The lowest batch number that must have been relayed here before the listener claims tasks of its ledger; nil
-- if it has no ledger, or its gate is closed.
local gate = tonumber(ARGV[13])
-- If more rows than this are dirty, no task of a ledger starts.
local MOST_DIRTY = 100000
local ledger_blocked

-- True if tasks of a ledger are not claimed now: this listener may not, or the ledger must catch up first.
local function is_ledger_blocked()
  if ledger_blocked == nil then
    local number = redis.pcall('HGET', ledger_key(), 'number')
    number = type(number) == 'string' and tonumber(number) or 0
    local dirty = redis.pcall('ZCARD', state_set('dirty'))
    ledger_blocked = not gate or number < gate or type(dirty) ~= 'number' or dirty > MOST_DIRTY
  end
  return ledger_blocked
end

-- The arguments that both claiming scripts have: see claim.lua.
local token, lease, idle, declaration = ARGV[2], tonumber(ARGV[3]), ARGV[6] == '1', ARGV[9]
local places, max_bytes, keep_failed = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local resend, listeners, held = ARGV[8] == '1', tonumber(ARGV[11]), tonumber(ARGV[12])

-- After this many lapses a task may be what kills its listeners: it is claimed alone, so no other dies with it.
local LAPSES_UNTIL_ALONE = 2
-- Those up to `waited` are rare. They are in the reply, in this order, after `ledger`: see store/task_records.py.
local FIELDS = { 'args', 'retry', 'timeout', 'misfire', 'trace', 'tags', 'snoozes', 'tick', 'waited',
  'attempt', 'lapses', 'made' }
if uses.limits then
  for _, field in ipairs({ 'slots', 'due', 'started', 'turn' }) do FIELDS[#FIELDS + 1] = field end
end
local FIRST, LAST = 4, 12 -- of what `read` gives beside a record: the places of the rare ones

local reply = { now_us, -1, 0, {}, false, -1, 0 }
local broken = reply[4]
local bytes, claimed, alone, meets_blocked = 0, 0, false, false
local ALONE = 1
local SHARE = 2
-- True if none of the tasks that were read ahead has a timer; and tasks that are taken, but not written yet. One command
-- for many costs far less than one for each.
local none_has_timer, taken = false, {}

-- A number that another client may have written, as a whole one: all is text, since to read or to format a number takes
-- the server as long as a small command.
local function whole(text, default)
  return string.find(text, '^%d+$') and text or string.format('%.0f', tonumber(text) or default)
end

local function add_to_reply(id, key, record, values, due, attempt)
  -- Values are read by place: reading by name makes a claim slower.
  local rare = record.key or record.ledger or false
  for i = FIRST, LAST do rare = rare or values[i] end
  if rare then
    rare = { record.key and record.call or false, record.ledger or false, unpack(values, FIRST, LAST) }
  end
  local lapses, made = record.lapses and whole(record.lapses, 0) or '0', record.made and whole(record.made, -1) or '-1'
  local head = id .. ' ' .. due .. ' ' .. attempt .. ' ' .. lapses .. ' ' .. made
  -- A first attempt although there is a number: one before was not counted, or it was moved here late.
  if record.attempt and attempt == '1' and record.token ~= token then head = head .. ' again' end
  local last = #reply
  reply[last + 1], reply[last + 2], reply[last + 3] = head, key, rare
  claimed = claimed + 1
  bytes = bytes + #record.call + #(record.args or '')
end

-- Reads the first of these ids, each followed by its score, and checks all their timers at once. It stops at the
-- bytes that a claim takes. Returns their records and values, by the places of the ids.
local function look_ahead(ids, most)
  local records, all_values, keys, seen = {}, {}, {}, 0
  for i = 1, math.min(#ids, 2 * most), 2 do
    if seen >= max_bytes then break end
    local id = ids[i]
    local record, values
    if is_id(id) then record, values = read(id, FIELDS) end
    if record then
      records[(i + 1) / 2], all_values[(i + 1) / 2] = record, values
      keys[#keys + 1] = trigger_key(id, record)
      seen = seen + #record.call + #(record.args or '')
    end
  end
  none_has_timer = keys[1] and redis.call('EXISTS', unpack(keys)) == 0
  return records, all_values
end

-- Writes the taken tasks, the destination first and the source last, as `move` does for one.
local function write_taken()
  if uses.limits then write_admitted() end
  if not taken[1] then return end
  local ids, keys, places = {}, {}, {}
  local lease_ends, started = string.format('%.0f', now + lease), string.format('%.0f', now)
  for i = 1, #taken do
    local task = taken[i]
    ids[i], keys[i], places[2 * i - 1], places[2 * i] = task[1], task[2], lease_ends, task[1]
  end
  -- In its due millisecond a key still exists: putting it off now would seem to succeed.
  if not none_has_timer then redis.call('DEL', unpack(keys)) end
  redis.call('ZADD', state_set('running'), unpack(places))
  for i = 1, #taken do
    local task = taken[i]
    local slots = task[5]
    if slots == '' then redis.call('HDEL', record_key(task[1]), 'slots') end
    if task[6] then redis.call('HDEL', record_key(task[1]), 'turn') end
    redis.call('HSET', record_key(task[1]), 'state', 'running', 'token', token, 'attempt', task[3],
      'due', task[4], 'started', started, unpack(slots and slots ~= '' and { 'slots', slots } or NONE))
  end
  redis.call('ZREM', state_set('pending'), unpack(ids))
  taken = {}
end

-- `due` is text.
local function take_task(id, record, values, due, slots)
  local attempt = record.attempt and string.format('%.0f', (tonumber(record.attempt) or 0) + 1) or '1'
  local key = trigger_key(id, record)
  taken[#taken + 1] = { id, key, attempt, due, slots or false, record.turn }
  add_to_reply(id, key, record, values, due, attempt)
end

-- Number of tasks that this claim may take: the listener's share of all due and running tasks, less those that it
-- holds.
local function share_of(due, running, among) return math.ceil((due + running) / among) - held end

local function is_poison(record)
  return record.lapses and (tonumber(record.lapses) or 0) >= LAPSES_UNTIL_ALONE
end

-- False while a part of what is due is looked at that does not begin with the first; and the tasks that were left then.
local from_front, skipped = true, 0

-- The lanes and rates of a due task whose turn it is; nil if it was made to wait.
local has_slots = uses.limits and function(id, record, due)
  local func = string.match(record.call, '^[^?]*')
  local lane, taken, rates, tenant = hold_on(func, record), NONE, NONE, nil
  local limits = limits_of(func)
  if not lane and not limits then return NONE, NONE end
  local lanes, tenants = lanes_of(limits or NONE, record)
  -- Its ordered lane, if it has no slot there.
  local order = limits and (limit_of(lanes[1]) or {}).ordered and lanes[1]
  if order and string.match(record.slots or '', '^[^\n]*') == order then order = nil end
  if not lane then
    -- What is behind others that it has not looked at may be behind one of its own lane.
    if order and not from_front then
      skipped = skipped + 1
      return nil
    end
    lane = order and hold_before(order)
    if not lane then
      lane, taken, rates = find_slots(lanes, record)
      tenant, order = tenants[lane], nil
    end
  end
  tenant = order or tenant
  if not lane then return taken, rates end
  if record.tick then
    write_admitted()
    end_tick_before(id, keep_failed)
  end
  park(id, record, due, lane, taken, tenant, rates[1])
  return nil
end

-- What a task has waited for slots is told of its latest due time alone.
local forget_waited = uses.limits and function(id, record)
  redis.call('HDEL', record_key(id), 'waited')
  record.waited = nil
  return false
end

-- The score is text; `record` and `values` are there if it was read ahead.
local function take_if_due(id, score, record, values)
  if not record then
    none_has_timer = false -- nobody has looked for this one's
    if is_id(id) then record, values = read(id, FIELDS) end
  end
  if not record then
    broken[#broken + 1] = id
    return fail_broken(id, 'pending', keep_failed)
  end
  if repair_place(id, record, 'pending', keep_failed) then return end
  local timer = not none_has_timer and read_timer(id, record)
  if timer then return follow_timer(id, record) end
  if record.ledger and is_ledger_blocked() then
    meets_blocked = true
    return
  end
  local slots, rates = NONE, NONE
  if uses.limits then
    local due = tonumber(score)
    -- Of one that was granted a slot, the first due time is in its record.
    local first_due = record.slots and tonumber(record.due) or due
    if first_due < due and is_granted(id) then due, score = first_due, record.due end
    if record.waited and tonumber(record.due) ~= due then values[LAST] = forget_waited(id, record) end
    slots, rates = has_slots(id, record, due)
    if not slots then return end
  end
  local poison = is_poison(record)
  if poison and (not idle or claimed > 0) then
    reply[3] = ALONE
    return
  end
  if record.tick and not begin_tick(id, record, tonumber(score), keep_failed, taken) then return end
  local changed
  if slots[1] or rates[1] or record.slots then changed = enter_lanes(id, record, slots, rates) end
  take_task(id, record, values, whole(score, 0), changed)
  alone = poison
  if poison then reply[3] = ALONE end
end

-- True if this database lacks the limits that this listener declares: nothing may be claimed then.
local function lacks_limits()
  return declaration ~= '' and redis.pcall('HEXISTS', limits_key(), 'd ' .. declaration) ~= 1
end

local function find_claimed()
  -- What the claim took before, and when that was due.
  FIELDS[#FIELDS + 1], FIELDS[#FIELDS + 2] = 'token', 'due'
  for _, id in ipairs(redis.call('ZRANGE', state_set('running'), 0, -1)) do
    local record, values = read(id, FIELDS)
    if record and record.token == token then
      add_to_reply(id, trigger_key(id, record), record, values, whole(record.due or '', 0), whole(record.attempt or '', 1))
      if is_poison(record) then reply[3] = ALONE end
    end
  end
end
