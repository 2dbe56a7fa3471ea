-- include names
-- include clock
-- include records
-- include timers
-- include places
-- include strays
-- include timer_edits
-- include tick_claims
-- include withheld

-- What the scripts that claim have in common, most of their arguments among it; see claim.lua.
local token, lease, room, max_bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local idle, keep_failed, resend = ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8] == '1'
local listeners, held = tonumber(ARGV[10]), tonumber(ARGV[11])

-- After so many lapses a task may be what kills its listeners: nothing else may die with it.
local LAPSES_UNTIL_ALONE = 2
-- The rare ones first, as they stand in the reply, behind `ledger`: after the policies those of
-- store/fields.py.
local RARE = 8
local FIELDS = { 'args', 'retry', 'timeout', 'misfire', 'trace', 'tags', 'snoozes', 'tick',
  'attempt', 'lapses', 'made' }
-- What only a resend needs: which tasks the claim took before, and when they were due.
local TAKEN_FIELDS = { 'token', 'due' }
local FIRST, LAST = 4, 3 + RARE -- of what `read` gives beside a record

local reply = { now_us, -1, 0, {}, false, -1 }
local broken = reply[4]
local bytes, claimed, alone, meets_withheld = 0, 0, false, false
local ALONE, SHARE = 1, 2

local function add_to_reply(id, record, values, due, attempt)
  -- By their places, not by their names, which costs a claim more.
  local rare = record.key or record.ledger or false
  for i = FIRST, LAST do rare = rare or values[i] end
  if rare then
    rare = { record.key and record.call or false, record.ledger or false, unpack(values, FIRST, LAST) }
  end
  reply[#reply + 1] = string.format('%s %.0f %.0f %.0f %.0f', id, due, attempt,
    tonumber(record.lapses) or 0, tonumber(record.made) or -1)
  reply[#reply + 1] = trigger_key(id, record)
  reply[#reply + 1] = rare
  claimed = claimed + 1
  bytes = bytes + #record.call + #(record.args or '')
end

local function take_task(id, record, values, due)
  local attempt = (tonumber(record.attempt) or 0) + 1
  -- In its due millisecond the key still lives: to put it off now would seem to succeed.
  redis.call('DEL', trigger_key(id, record))
  move(id, record, 'running', now + lease,
    { 'token', token, 'attempt', attempt, 'due', due, 'started', now })
  add_to_reply(id, record, values, due, attempt)
end

-- How many tasks this claim may take so that its listener has no more than its share of what is due and
-- running, if so many listeners divide that.
local function share_of(due, running, among) return math.ceil((due + running) / among) - held end

local function is_poison(record) return (tonumber(record.lapses) or 0) >= LAPSES_UNTIL_ALONE end

local function take_if_due(id, due)
  local record, values
  if is_id(id) then record, values = read(id, FIELDS) end
  if not record then
    broken[#broken + 1] = id
    return set_aside(id, 'pending', keep_failed)
  end
  if strayed(id, record, 'pending', keep_failed) then return end
  local poison = is_poison(record)
  if poison and (not idle or claimed > 0) then
    reply[3] = ALONE
    return
  end
  local timer = read_timer(id, record)
  if timer then
    follow_timer(id, record)
  elseif record.ledger and is_withheld() then
    meets_withheld = true
  elseif not record.tick or begin_tick(id, record, due, keep_failed) then
    take_task(id, record, values, due)
    alone = poison
    if poison then reply[3] = ALONE end
  end
end

local function find_own()
  for _, name in ipairs(TAKEN_FIELDS) do FIELDS[#FIELDS + 1] = name end
  for _, id in ipairs(redis.call('ZRANGE', state_set('running'), 0, -1)) do
    local record, values = read(id, FIELDS)
    if record and record.token == token then
      add_to_reply(id, record, values, tonumber(record.due), tonumber(record.attempt))
      if is_poison(record) then reply[3] = ALONE end
    end
  end
end
