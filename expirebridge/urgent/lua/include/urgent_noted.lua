-- include features
-- include format
-- include hooks
-- include names
-- include records
-- on on_write 70 note_urgent

-- Notes that the database has urgent tasks, before the first of them is written, and places it: this script has nothing
-- else of the index.
local has_index = uses.urgent

local function note_urgent(fields, id, due)
  if has_index or not value_of(fields, 'urgent') then return end
  note_feature('urgent')
  if due then redis.call('ZADD', own_key('urgent'), due, id) end
end
