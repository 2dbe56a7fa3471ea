-- flags: no-writes
-- Reports how many partitions the database has.
--
-- KEYS[1]  prefix
-- ARGV     1 database
-- returns  their number; or the error EXPIREBRIDGE_PARTITIONS with it, if another was assumed

-- include format

return partitions
