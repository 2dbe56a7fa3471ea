-- include names
-- include records
-- include timers
-- include carriers

-- What a reader sees of a series, by the places of these names; see include/series.lua.
local SHOWN_OF_SERIES = { 'call', 'args', 'spec', 'fingerprint', 'declared', 'made', 'tick', 'due',
  'tzdata', 'paused', 'last', 'began', 'late', 'outcome', 'ended', 'succeeded', 'running', 'missed',
  'overlapped', 'tags', 'retry', 'timeout', 'misfire' }

-- A series for a reader: id, its place, when its waiting tick is due (a client may have moved it) or nil,
-- that tick's state or nil, the state of the latest tick that began or nil, how many listeners declare
-- it, then the values; nil if it is gone.
local function view_of_series(id, texts)
  local values = redis.pcall('HMGET', series_key(id), unpack(SHOWN_OF_SERIES))
  local place = redis.call('ZSCORE', series_set(), id)
  if values.err or not values[1] or not place then return false end -- one of a ledger has no place
  local tick = values[7] and id .. '@' .. values[7]
  local waiting = tick and read(tick, { 'due', 'left' })
  local due = waiting and not FINISHED[waiting.state] and due_of(tick, waiting) or false
  local carriers = 0
  for _, count in pairs(values[5] and carried(texts, id) or {}) do carriers = carriers + count end
  local last = values[11] and read(values[11])
  return { id, place, due, waiting and waiting.state or false,
    last and last.state or false, carriers, values }
end
