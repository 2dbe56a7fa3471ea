-- flags: no-writes
-- Tells which of the keys whose timers were set need a look: the others belong to tasks that wait for
-- just that time.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then the names of keys
-- returns  the names of those that need a look
--
-- Scripts set timers like any other client, and theirs are by far the most.

-- include names
-- include clock
-- include format
-- include records

local function is_news(name)
  local id = string.match(name, '^([^?]*):%?', #slot + 1)
  if not id or not in_slot(name) then return true end
  local due = redis.pcall('ZSCORE', state_set('pending'), id)
  return type(due) ~= 'string' or end_of(name) ~= tonumber(due)
end

local reply = {}
for at = 2, #ARGV do
  if is_news(ARGV[at]) then reply[#reply + 1] = ARGV[at] end
end
return reply
