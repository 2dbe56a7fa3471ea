-- flags: no-writes
-- Reads a page of series, those first whose next tick is to be made first.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms, 3 cursor ('0' to begin): a rank, 4 most series to look at
-- returns  next cursor ('0': no more), now, then what `view_of_series` gives of each

-- include format
-- include clock
-- include series
-- include series_keys

local declared = count_declarations(tonumber(ARGV[2]))
local from, count = tonumber(ARGV[3]), tonumber(ARGV[4])
local ids = redis.call('ZRANGE', series_set(), from, from + count - 1)
local reply = { #ids < count and '0' or string.format('%.0f', from + #ids), now }
for _, id in ipairs(ids) do reply[#reply + 1] = view_of_series(id, declared) end
return reply
