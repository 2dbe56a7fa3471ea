-- include names
-- gives series_set, series_key, tzdata_set, declarations_key

-- What series keep: see series.lua.
local function series_set() return prefix .. ':series' end
local function series_key(id) return prefix .. ':series:' .. id end
local function tzdata_set() return prefix .. ':tzdata' end
local function declarations_key() return prefix .. ':carriers' end
