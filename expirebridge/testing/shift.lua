-- flags: (none: for tests)
-- Moves this database's clock forward, and the end of every key with it.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 the ms since 1970 to which the clock is moved; one that has passed moves nothing
-- returns  now in microseconds
--
-- A key that ends before that time is left a millisecond: it expires by itself, with its event.

-- include names
-- include clock

-- Before Redis 7.2 the clock runs on during a script, and a key whose end is set to a time that has
-- passed is deleted, with another event. So an end that is near is set by the time left until then.
local function set_end(name, ends)
  local left = ends + offset - math.floor(read_clock() / 1000)
  if left > 5 then
    redis.call('PEXPIREAT', name, string.format('%.0f', ends))
  else
    redis.call('PEXPIRE', name, math.max(left, 1))
  end
end

local by = tonumber(ARGV[2]) - now
if by <= 0 then return now_us end
for _, name in ipairs(redis.call('KEYS', '*')) do
  local ends = end_of(name)
  if ends >= 0 then set_end(name, ends - offset - by) end
end
redis.call('SET', own_key('offset'), string.format('%.0f', offset + by))
return now_us + by * 1000
