-- include names
-- gives lane_key, queue_key, turns_key, shares_key, order_key, tenant_key

-- What limits keep: see lanes.lua and limits.lua.
local function lane_key(lane) return prefix .. ':lane:' .. lane end
local function queue_key(lane) return prefix .. ':queue:' .. lane end
local function turns_key(lane) return prefix .. ':turns:' .. lane end
local function shares_key(lane) return prefix .. ':shares:' .. lane end
local function order_key(lane) return prefix .. ':order:' .. lane end
local function tenant_key(lane, tenant) return prefix .. ':queue:' .. lane .. '\t' .. tenant end
