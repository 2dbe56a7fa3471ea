-- include names
-- gives lanes_key, held_key, lane_key, queue_key, grants_key, waits_key, rates_key, unserved_key, weights_key
-- gives turns_key, shares_key, order_key, tenant_key, limits_key, holds_key

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
