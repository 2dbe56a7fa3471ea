-- The names of every key. All derive from KEYS[1], the prefix, whose leading {tag}, if it has one,
-- puts the trigger keys into the same cluster slot. ARGV[1] is the number of the database, for the
-- doorbell: channels are shared by all databases of a server.
local prefix = KEYS[1]
local slot = string.match(prefix, '^{[^{}]*}') or ''
local listeners_key = prefix .. ':listeners'
local meta_key = prefix .. ':meta'
local doorbell = prefix .. ':doorbell:' .. ARGV[1]

local function state_set(state) return prefix .. ':' .. state end
local function record_key(id) return prefix .. ':task:' .. id end
local function tag_set(tag) return prefix .. ':tag:' .. tag end

-- Whether a key can be ours. With a tag, keys of other tags belong to other partitions, and no script
-- may touch them, for they may be on another node.
local function in_slot(name) return string.sub(name, 1, #slot) == slot end
