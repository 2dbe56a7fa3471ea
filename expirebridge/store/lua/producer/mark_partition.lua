-- flags: (none: refused whole when memory is full)
-- Writes to a partition how many there are, unless it knows.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  1

-- include format
-- include features

mark_format()
return 1
