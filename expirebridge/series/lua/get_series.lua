-- flags: no-writes
-- Reads one series.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms, 3 id
-- returns  now, and nil or what `view_of_series` gives

-- include format
-- include clock
-- include series

return { now, view_of_series(ARGV[3], count_declarations(tonumber(ARGV[2]))) or false }
