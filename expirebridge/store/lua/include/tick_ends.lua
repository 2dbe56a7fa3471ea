-- include names
-- include clock

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
