-- flags: no-writes
-- Reports the format of the database, what needs it, and which listeners know only format 1.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms
-- returns  format ('': none is written), the highest that is known here, {what needs format 2},
--          {listeners that beat and know only format 1}

-- include format
-- include silent
-- include format_uses

return { written or '', KNOWN_FORMAT, uses_of_format_2(), silent_listeners(tonumber(ARGV[2])) }
