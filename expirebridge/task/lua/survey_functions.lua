-- flags: no-writes
-- Counts the retries among the tasks that come next, and lists the functions of the tasks.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 most tasks to look at
-- returns  how many were looked at, how many of them wait for another attempt, their functions, each once, and
--          those that they may run instead

-- include names
-- include records
-- include hooks

local OTHERS = all_fields({}, other_functions)
local FIELDS = { 'attempt', unpack(OTHERS) }

local ids = redis.call('ZRANGE', state_set('pending'), 0, tonumber(ARGV[2]) - 1)
local retries, functions, others = 0, {}, {}
local known = { [functions] = {}, [others] = {} }

local function add(list, func)
  if known[list][func] then return end
  known[list][func] = true
  list[#list + 1] = func
end

for _, id in ipairs(ids) do
  local record = read(id, FIELDS)
  if record then
    if (tonumber(record.attempt) or 0) > 0 then retries = retries + 1 end
    add(functions, string.match(record.call, '^[^?]*'))
    for _, name in ipairs(OTHERS) do
      if record[name] then add(others, record[name]) end
    end
  end
end
return { #ids, retries, functions, others }
