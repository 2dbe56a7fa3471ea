-- include format
-- include hooks
-- include names
-- when signals
-- on on_stray 60 remove_lost
-- on left_fields 60 LEFT_FIELDS

-- Where it was moved from, too.
local LEFT_FIELDS = { 'lost' }

-- Another client has set the key of the function that a signal left behind: it would run beside the other one.
local function remove_lost(id, name)
  local lost = redis.call('HGET', record_key(id), 'lost')
  if not lost or trigger_key(id, { call = lost }) ~= name then return false end
  redis.call('DEL', name)
  return true
end
