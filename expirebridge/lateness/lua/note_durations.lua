-- flags: (none: refused whole when memory is full)
-- Adds to what is known of how long the handlers of functions take.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then for each function: its name, how many attempts ended, the ms that they took
-- returns  nil
--
-- A field is `<attempts> <ms>`. Beyond MOST attempts older ones count less with each that comes, so that the mean
-- follows a handler that has become slower. A resend counts twice, which the mean does not show.

-- include names
-- include format

local MOST = 1000

for at = 2, #ARGV, 3 do
  local func, count, ms = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local stored = redis.pcall('HGET', own_key('durations'), func)
  local before, took = string.match(type(stored) == 'string' and stored or '', '^([%d.]+) ([%d.]+)$')
  count, ms = count + (tonumber(before) or 0), ms + (tonumber(took) or 0)
  local share = math.min(MOST / count, 1)
  redis.pcall('HSET', own_key('durations'), func, string.format('%.3f %.3f', count * share, ms * share))
end
return false
