-- flags: no-writes
-- Finds keys of ours that another client has overwritten with another type.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  their names

-- include names
-- include records

local found = {}

local function note_other_kinds(names, kind)
  for _, name in ipairs(names) do
    local stored = redis.call('TYPE', own_key(name)).ok
    if stored ~= 'none' and stored ~= kind then found[#found + 1] = own_key(name) end
  end
end

note_other_kinds(STATES, 'zset')
note_other_kinds({ 'listeners', 'series', 'tzdata', 'dirty', 'lanes', 'grants', 'waits', 'rates', 'held' }, 'zset')
local HASHES = {
  'meta', 'fleet', 'carriers', 'ledger', 'move', 'arrivals', 'imports', 'limits', 'holds', 'weights', 'numbers',
  'durations',
}
note_other_kinds(HASHES, 'hash')
note_other_kinds({ 'actions' }, 'list')
return found
