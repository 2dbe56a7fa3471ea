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
-- include hooks

local facts = {}
local function tell(name, value)
  if not value then return end
  facts[#facts + 1], facts[#facts + 2] = name, value
end

local TELL = {
  pending = function(id, record)
    local timer = read_timer(id, record)
    tell('timer', timer == 'none' and -1 or timer or -2)
    tell('ttl', record.ttl)
    tell('ahead', redis.call('ZRANK', state_set('pending'), id))
  end,
  running = function(_, record)
    tell('timeout', record.timeout)
    tell('cancel', record.cancel)
  end,
}

local id = ARGV[2]
local record = read(id, { 'timeout', 'cancel', 'ttl' })
if not record then return false end
local score = tonumber(redis.call('ZSCORE', state_set(record.state), id))
local shown, place = view(id, record.state, score), false
if not shown then return false end
for i = 1, #on_show do on_show[i](id, shown) end
if TELL[record.state] then TELL[record.state](id, record) end
for i = 1, #on_tell do place = on_tell[i](id, record, shown[5], tell) or place end
return { shown, score or -1, now_us, place, facts }
