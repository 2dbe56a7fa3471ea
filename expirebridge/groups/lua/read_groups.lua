-- flags: no-writes
-- Reads a page of groups whole, for an export.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 cursor: a rank, 3 most groups
-- returns  next cursor ('0': no more), then for each group its name, names and values of its hash, what it knows of its
--          members (see groups.lua), and its follow-up as in get.lua, if that is paused, else nil

-- include names
-- include format
-- include records
-- include task_view
-- include groups

local from, count = tonumber(ARGV[2]), tonumber(ARGV[3])

local function paused_view(id)
  local record = id and read(id)
  return record and record.state == 'paused' and view(id, 'paused', nil) or false
end

local names = redis.call('ZREVRANGE', state_set('groups'), from, from + count - 1)
local reply = { #names < count and '0' or string.format('%.0f', from + count) }
for _, name in ipairs(names) do
  local fields, members = redis.pcall('HGETALL', group_key(name)), redis.pcall('GET', group_key(name, '@members'))
  if not fields.err and fields[1] then
    reply[#reply + 1] = name
    reply[#reply + 1] = fields
    reply[#reply + 1] = type(members) == 'string' and members or ''
    reply[#reply + 1] = paused_view(redis.call('HGET', group_key(name), 'then'))
  end
end
return reply
