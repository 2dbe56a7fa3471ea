-- flags: allow-oom
-- Lets tasks begin in ordered lanes: of the tasks of such lanes, all that were in the other database have arrived.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  1

-- include format
-- include arrivals

open_lanes()
return 1
