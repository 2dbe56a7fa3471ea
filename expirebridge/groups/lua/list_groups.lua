-- flags: no-writes
-- Reads a page of groups: those that have not ended come first.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 cursor: a rank, 3 most groups
-- returns  next cursor ('0': no more), then for each group its name, and the names and values of its hash

-- include names
-- include format
-- include groups

local from, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local names = redis.call('ZREVRANGE', state_set('groups'), from, from + count - 1)
local reply = { #names < count and '0' or string.format('%.0f', from + count) }
for _, name in ipairs(names) do
  local fields = redis.pcall('HGETALL', group_key(name))
  if not fields.err and fields[1] then
    reply[#reply + 1] = name
    reply[#reply + 1] = fields
  end
end
return reply
