-- The names of every key. All derive from KEYS[1], the prefix, whose leading {tag}, if it has one,
-- puts the trigger keys into the same cluster slot. ARGV[1] is the number of the database, for the
-- doorbell: channels are shared by all databases of a server. Where it is '', because the caller need
-- not know it, the listeners have left it in `meta`.
local prefix = KEYS[1]
local slot = string.match(prefix, '^{[^{}]*}') or ''
local listeners_key = prefix .. ':listeners'
local meta_key = prefix .. ':meta'
local database = ARGV[1]
if database == '' then database = redis.pcall('HGET', meta_key, 'database') end

-- Without a number no listener has ever been here, and nobody waits to be told.
local function tell_listeners(message)
  if type(database) == 'string' then
    redis.call('PUBLISH', prefix .. ':doorbell:' .. database, message)
  end
end

local function state_set(state) return prefix .. ':' .. state end
local function record_key(id) return prefix .. ':task:' .. id end
local function tag_set(tag) return prefix .. ':tag:' .. tag end

-- Whether a key can be ours. With a tag, keys of other tags belong to other partitions, and no script
-- may touch them, for they may be on another node.
local function in_slot(name) return string.sub(name, 1, #slot) == slot end
