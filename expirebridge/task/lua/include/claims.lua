-- include names
-- include clock
-- include records
-- include state_sets
-- include timer_edits
-- include format
-- include hooks
-- gives places, max_bytes, keep_failed, resend, listeners, held, LAST, reply, bytes, claimed, alone, meets_blocked
-- gives SHARE, taken, parked, MOST_PARKED, whole, look_ahead, write_taken, share_of, from_front, skipped, take_if_due
-- gives find_claimed

-- The arguments that both claiming scripts have: see claim.lua.
local token, lease, idle = ARGV[2], tonumber(ARGV[3]), ARGV[6] == '1'
local places, max_bytes, keep_failed = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local resend, listeners, held = ARGV[8] == '1', tonumber(ARGV[11]), tonumber(ARGV[12])

-- After this many lapses a task may be what kills its listeners: it is claimed alone, so no other dies with it.
local LAPSES_UNTIL_ALONE = 2
-- Those up to `waited` are rare. They are in the reply, in this order, after `ledger`, and before what others tell of the
-- task, a list of names and values: see store/task_records.py.
local FIELDS = { 'args', 'retry', 'timeout', 'misfire', 'trace', 'tags', 'snoozes', 'tick', 'waited',
  'attempt', 'lapses', 'made' }
-- Of what `read` gives beside a record: the places of the rare ones.
local FIRST = 4
local LAST = 12

local reply = { now_us, -1, 0, {}, false, -1, 0 }
local broken = reply[4]
local bytes, claimed, alone, meets_blocked = 0, 0, false, false
local ALONE = 1
local SHARE = 2
-- True if none of the tasks that were read ahead has a timer; and tasks that are taken, but not written yet. One command
-- for many costs far less than one for each.
local none_has_timer = false
local taken = {}

-- Tasks that this script made wait; and at most so many in one script. The server answers nobody before it has run the
-- scripts of all clients that asked meanwhile: while very many become due, each listener asks again and again.
local parked = 0
local MOST_PARKED = math.max(math.floor(100 / (listeners or 1)), 20)

-- A number that another client may have written, as a whole one: all is text, since to read or to format a number takes
-- the server as long as a small command.
local function whole(text, default)
  return string.find(text, '^%d+$') and text or string.format('%.0f', tonumber(text) or default)
end

-- How many bytes of a claim a task is: its call and arguments, and what was read of it for others, which is behind all
-- of FIELDS.
local function size_of(record, values)
  local size = #record.call + #(record.args or '')
  for i = 16, #values do size = size + #(values[i] or '') end
  return size
end

local function add_to_reply(id, key, record, values, due, attempt)
  -- Values are read by place: reading by name makes a claim slower.
  local rare = record.key or record.ledger or false
  for i = FIRST, LAST do rare = rare or values[i] end
  local more
  for i = 1, #on_reply do more = on_reply[i](record) or more end
  if rare or more then
    rare = { record.key and record.call or false, record.ledger or false, unpack(values, FIRST, LAST) }
    rare[#rare + 1] = more
  end
  local lapses, made = record.lapses and whole(record.lapses, 0) or '0', record.made and whole(record.made, -1) or '-1'
  local head = id .. ' ' .. due .. ' ' .. attempt .. ' ' .. lapses .. ' ' .. made
  -- A first attempt although there is a number: one before was not counted, or it was moved here late.
  if record.attempt and attempt == '1' and record.token ~= token then head = head .. ' again' end
  local last = #reply
  reply[last + 1], reply[last + 2], reply[last + 3] = head, key, rare
  claimed = claimed + 1
  bytes = bytes + size_of(record, values)
end

-- Reads the first of these ids, each followed by its score, and checks all their timers at once. It stops at the
-- bytes that a claim takes. Returns their records and values, by the places of the ids.
local function look_ahead(ids, most)
  local records, all_values, keys, seen = {}, {}, {}, 0
  for i = 1, math.min(#ids, 2 * most), 2 do
    if seen >= max_bytes then break end
    local id = ids[i]
    local record, values
    if is_id(id) then record, values = read(id, all_fields(FIELDS, claim_fields)) end
    if record then
      records[(i + 1) / 2], all_values[(i + 1) / 2] = record, values
      keys[#keys + 1] = trigger_key(id, record)
      seen = seen + size_of(record, values)
    end
  end
  none_has_timer = keys[1] and redis.call('EXISTS', unpack(keys)) == 0
  return records, all_values
end

-- Writes the taken tasks, the destination first and the source last, as `move` does for one.
local function write_taken()
  for i = 1, #before_taken do before_taken[i]() end
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
    local set, gone = task[5], task[6]
    if gone[1] then redis.call('HDEL', record_key(task[1]), unpack(gone)) end
    redis.call('HSET', record_key(task[1]), 'state', 'running', 'token', token, 'attempt', task[3],
      'due', task[4], 'started', started, unpack(set))
  end
  redis.call('ZREM', state_set('pending'), unpack(ids))
  taken = {}
end

-- `due` is text.
local function take_task(id, record, values, due)
  local attempt = record.attempt and string.format('%.0f', (tonumber(record.attempt) or 0) + 1) or '1'
  local key = trigger_key(id, record)
  local set, gone = NONE, NONE
  if on_take[1] then
    set, gone = {}, {}
    for i = 1, #on_take do on_take[i](id, record, set, gone) end
  end
  taken[#taken + 1] = { id, key, attempt, due, set, gone }
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

-- The score is text; `record` and `values` are there if it was read ahead.
local function take_if_due(id, score, record, values)
  if not record then
    none_has_timer = false -- nobody has looked for this one's
    if is_id(id) then record, values = read(id, all_fields(FIELDS, claim_fields)) end
  end
  if not record then
    broken[#broken + 1] = id
    return fail_broken(id, 'pending', keep_failed)
  end
  if repair_place(id, record, 'pending', keep_failed) then return end
  local timer = not none_has_timer and read_timer(id, record)
  if timer then return follow_timer(id, record) end
  for i = 1, #on_look do
    if on_look[i](record) then
      meets_blocked = true
      return
    end
  end
  for i = 1, #on_claim do
    score = on_claim[i](id, record, values, score)
    if not score then return end
  end
  local poison = is_poison(record)
  if poison and (not idle or claimed > 0) then
    reply[3] = ALONE
    return
  end
  for i = 1, #on_start do
    if not on_start[i](id, record, score, taken, keep_failed) then return end
  end
  take_task(id, record, values, whole(score, 0))
  alone = poison
  if poison then reply[3] = ALONE end
end

local function find_claimed()
  -- What the claim took before, and when that was due.
  FIELDS[#FIELDS + 1], FIELDS[#FIELDS + 2] = 'token', 'due'
  for _, id in ipairs(redis.call('ZRANGE', state_set('running'), 0, -1)) do
    local record, values = read(id, all_fields(FIELDS, claim_fields))
    if record and record.token == token then
      add_to_reply(id, trigger_key(id, record), record, values, whole(record.due or '', 0), whole(record.attempt or '', 1))
      if is_poison(record) then reply[3] = ALONE end
    end
  end
end
