-- flags: no-writes
-- Finds the keys whose events need a look. Most keys were set by a script, for a task that waits for
-- that very time, or ended because a listener claimed their task.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 the event ('expired', 'deleted', or 'live' for anything else), then
--          the names of keys
-- returns  the names of those that need a look

-- include names
-- include clock
-- include records
-- include format
-- include hooks

local function score_of(id, state)
  local score = redis.pcall('ZSCORE', state_set(state), id)
  return type(score) == 'string' and tonumber(score) or nil
end

local function has_key(id, name)
  local record = read(id)
  return record and trigger_key(id, record) == name
end

-- True if a key's expiry is not the due time of its task.
local function is_unknown_timer(name, id)
  local due = score_of(id, 'pending')
  return not due or end_of(name) ~= due or not has_key(id, name)
end

-- True if a key is gone although its task was not claimed since, and is not due. One that was granted a slot was due,
-- and may be pending until its rate allows a start.
local function is_unexplained_end(name, id)
  local record = is_id(id) and read(id)
  if not record or trigger_key(id, record) ~= name or read_timer(id, record) then return true end
  if record.state == 'running' or FINISHED[record.state] then return false end
  if (score_of(id, record.state) or math.huge) <= now then return false end
  for i = 1, #keyless do
    if keyless[i](id) then return false end
  end
  return true
end

local is_unexplained = ARGV[2] == 'live' and is_unknown_timer or is_unexplained_end

local reply = {}
for at = 3, #ARGV do
  local name = ARGV[at]
  local id = string.match(name, '^([^?]*):%?', #hash_tag + 1)
  if not id or not has_hash_tag(name) or is_unexplained(name, id) then reply[#reply + 1] = name end
end
return reply
