-- flags: (none: refused whole when memory is full)
-- Raises the format to 2, unless it is raised already. Older code then refuses the database.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms
-- returns  1, or the error EXPIREBRIDGE_OLDER_LISTENERS with the names of the listeners that beat and
--          know only format 1: nothing is written then

-- include format
-- include raise_format

return raise_format(tonumber(ARGV[2])) or 1
