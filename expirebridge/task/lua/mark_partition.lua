-- flags: (none: refused whole when memory is full)
-- Writes the number of partitions into a partition's `meta`, unless it is there.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  1

-- include format
-- include features

mark_format()
return 1
