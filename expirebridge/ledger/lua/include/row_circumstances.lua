-- include hooks
-- include names
-- on on_tell 45 tell_dirty

-- How many rows a ledger has to write, of a task that it has and that is pending.
local function tell_dirty(_, record, _, tell)
  if not record.ledger or record.state ~= 'pending' then return end
  local dirty = redis.pcall('ZCARD', state_set('dirty'))
  if type(dirty) == 'number' then tell('dirty', dirty) end
end
