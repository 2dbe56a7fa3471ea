-- gives prefix, slot, listeners_key, meta_key, state_set, record_key, tag_set, minute_key, actions_key, fleet_key
-- gives group_key, durations_key, code_key, ledger_key, series_set, series_key, tzdata_set, declarations_key
-- gives broken_key, trigger_key, own_key, is_ours, in_slot, limits_key, holds_key, lanes_key, held_key, lane_key
-- gives queue_key, grants_key, waits_key, rates_key, unserved_key, weights_key, turns_key, shares_key, order_key
-- gives tenant_key

-- The names of every key. All derive from KEYS[1], the prefix, whose leading {tag}, if it has one,
-- puts the trigger keys into the same cluster slot.
local prefix = KEYS[1]
local slot = string.match(prefix, '^{[^{}]*}') or ''
local listeners_key = prefix .. ':listeners'
local meta_key = prefix .. ':meta'

-- The set of a state; or `dirty`, see ledger.lua; or `groups` and `stopping`, see groups.lua.
local function state_set(state) return prefix .. ':' .. state end
local function record_key(id) return prefix .. ':task:' .. id end
local function tag_set(tag) return prefix .. ':tag:' .. tag end
local function minute_key(minute) return string.format('%s:minute:%.0f', prefix, minute) end
local function actions_key() return prefix .. ':actions' end
local function fleet_key() return prefix .. ':fleet' end
-- The hash of a group; or, with '@members', what it knows of each member. See groups.lua.
local function group_key(name, part) return prefix .. ':group:' .. name .. (part or '') end
local function durations_key() return prefix .. ':durations' end
local function code_key(fingerprint) return prefix .. ':code:' .. fingerprint end
local function ledger_key() return prefix .. ':ledger' end
local function series_set() return prefix .. ':series' end
local function series_key(id) return prefix .. ':series:' .. id end
local function tzdata_set() return prefix .. ':tzdata' end
local function declarations_key() return prefix .. ':carriers' end

-- The new name of a key of ours that another client has overwritten.
local function broken_key(name) return prefix .. ':broken:' .. name end

local function trigger_key(id, record)
  return record.key or (slot .. id .. ':?' .. record.call)
end

-- The names of all keys but trigger keys.
local function own_key(name) return prefix .. ':' .. name end
local function is_ours(name) return string.sub(name, 1, #prefix + 1) == prefix .. ':' end

-- True if a key can belong to this partition. With a tag, keys with other tags belong to other partitions, and no
-- script may use them: they may be on another node.
local function in_slot(name) return string.sub(name, 1, #slot) == slot end

-- What limits keep: see lanes.lua and limits.lua.
local function limits_key() return prefix .. ':limits' end
local function holds_key() return prefix .. ':holds' end
local function lanes_key() return prefix .. ':lanes' end
local function held_key() return prefix .. ':held' end
local function lane_key(lane) return prefix .. ':lane:' .. lane end
local function queue_key(lane) return prefix .. ':queue:' .. lane end
local function grants_key() return prefix .. ':grants' end
local function waits_key() return prefix .. ':waits' end
local function rates_key() return prefix .. ':rates' end
local function unserved_key() return prefix .. ':unserved' end
local function weights_key() return prefix .. ':weights' end
local function turns_key(lane) return prefix .. ':turns:' .. lane end
local function shares_key(lane) return prefix .. ':shares:' .. lane end
local function order_key(lane) return prefix .. ':order:' .. lane end
local function tenant_key(lane, tenant) return prefix .. ':queue:' .. lane .. '\t' .. tenant end
