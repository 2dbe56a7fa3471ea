-- include names
-- include clock
-- include records
-- include format
-- include hooks
-- include tick_claims
-- include series_keys
-- unless plain
-- on on_move 40 note_tick_moved
-- on on_retry 40 is_last_attempt
-- on on_succeed 40 note_ticks_succeeded

-- How ticks end.

-- Notes in its series how a tick ended, since the tick's own record is soon forgotten: when one last
-- succeeded, and what became of the latest that began.
local function note_end_of_tick(id, state)
  local series = string.match(id, '^(.+)@%d+$')
  local known = series and redis.pcall('HMGET', series_key(series), 'call', 'last')
  if not known or known.err or not known[1] then return end
  local fields = known[2] == id and { 'outcome', state, 'ended', now } or {}
  if state == 'succeeded' then fields[#fields + 1], fields[#fields + 2] = 'succeeded', now end
  if fields[1] then redis.call('HSET', series_key(series), unpack(fields)) end
end

local function note_tick_moved(id, _, _, state, _, fields)
  if fields and FINISHED[state] and string.find(id, '@', 1, true) then note_end_of_tick(id, state) end
end

local function note_ticks_succeeded(tasks)
  for _, task in ipairs(tasks) do
    if string.find(task[1], '@', 1, true) then note_end_of_tick(task[1], 'succeeded') end
  end
end

-- True if no attempt of a tick may start at that time: its series lets no ticks overlap, and the next one is due by
-- then.
local function is_last_attempt(id, at)
  if not string.find(id, '@', 1, true) then return false end
  local tick = redis.call('HGET', record_key(id), 'tick')
  local successor = tick and tonumber(string.match(tick, NEXT_IN_TICK))
  if not successor or at < successor then return false end
  local series = series_key(string.match(id, SERIES_IN_ID) or '')
  local known = redis.pcall('HMGET', series, 'call', 'overlap')
  return not known.err and known[1] and known[2] ~= 'allow'
end
