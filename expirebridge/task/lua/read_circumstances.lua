-- flags: no-writes
-- Reads one task, and what decides when it runs.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id
-- returns  nil, or {the reply of `get`, its score in the set of its state, now in microseconds, of a pending task the
--          lane in which it was granted a slot, or a start: as `get` gives that of a waiting one, {name, value, ...}}:
--          pending: `timer` (ms; -1: without a TTL; -2: none), `ttl` (it is watched), `ahead` (tasks that are due
--          earlier), `dirty` (rows that its ledger has to write), `rest` of that lane's rate (see limits.lua)
--          waiting: `parked` (ms since when), `arrival` and `rest` of its rate, `held` (1: its hold is there),
--          `moving` (if nothing begins in ordered lanes: where the tasks go to, or come from); and for
--          some that have a slot in its lane: `holder`, an id, `is`, its state
--          running: `timeout` (s), `cancel` (1: no further attempt)
--          failed: `slots` (it keeps some)

-- include names
-- include format
-- include clock
-- include records
-- include task_view
-- include places
-- include limits
-- include lane_keys

-- Of those that have a slot, so many are read.
local MOST_HOLDERS = 4

local facts = {}
local function tell(name, value)
  if not value then return end
  facts[#facts + 1], facts[#facts + 2] = name, value
end

-- Of a pending task, the lane in which it was granted a slot, or a start.
local granted = false

local function score_of(key, member) return tonumber(redis.pcall('ZSCORE', key, member) or nil) end

local function tell_holders(lane)
  local page = redis.pcall('SSCAN', lane_key(lane), 0, 'COUNT', 10)
  for i, id in ipairs(page[2] or {}) do
    if i > MOST_HOLDERS then break end
    local record = is_id(id) and read(id)
    tell('holder', id)
    tell('is', record and record.state or '')
  end
end

local TELL = {
  pending = function(id, record)
    local timer = read_timer(id, record)
    tell('timer', timer == 'none' and -1 or timer or -2)
    tell('ttl', record.ttl)
    tell('ahead', redis.call('ZRANK', state_set('pending'), id))
    if is_held and record.slots and score_of(grants_key(), id) then
      local lane = string.match(record.slots, '^.*\n(.*)') or record.slots
      tell('rest', score_of(rates_key(), 'rest ' .. lane))
      granted = place_of(id, lane)
    end
    if record.ledger then tell('dirty', count_of(redis.pcall('ZCARD', state_set('dirty')))) end
  end,
  waiting = function(_, record)
    local lane = record.queue or ''
    tell('parked', record.parked)
    tell('arrival', score_of(rates_key(), lane))
    tell('rest', score_of(rates_key(), 'rest ' .. lane))
    local hold = string.match(lane, '^hold (.*)$')
    tell('held', hold and is_held and is_held(hold) and 1)
    local is_closed = moving and (string.sub(moving, 1, 3) == 'to '
      or redis.pcall('HEXISTS', own_key('arrivals'), 'closed') == 1)
    tell('moving', is_closed and moving)
    tell_holders(lane)
  end,
  running = function(_, record)
    tell('timeout', record.timeout)
    tell('cancel', record.cancel)
  end,
  failed = function(_, record) tell('slots', record.slots) end,
}

local id = ARGV[2]
local record = read(id, { 'queue', 'parked', 'timeout', 'cancel', 'slots', 'ttl' })
if not record then return false end
local score = tonumber(redis.call('ZSCORE', state_set(record.state), id))
local shown = view(id, record.state, score)
if not shown then return false end
if record.state == 'waiting' and record.queue then shown[6] = place_of(id, record.queue) end
if TELL[record.state] then TELL[record.state](id, record) end
return { shown, score or -1, now_us, granted, facts }
