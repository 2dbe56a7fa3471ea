-- flags: (none: refused whole when memory is full)
-- Declares which of a listener's functions are urgent. Of several listeners the one that started last decides, for the
-- functions that it has.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 how many of the names are those of urgent functions, which come first, then names of functions
-- returns  1
--
-- Functions that are not matter only where others were declared before.

-- include names
-- include format
-- include features
-- include urgent_index

local urgent = tonumber(ARGV[2])
if urgent == 0 and not uses.urgent then return 1 end
if type(redis.pcall('HLEN', marks_key())) ~= 'number' then
  redis.call('RENAME', marks_key(), broken_key('urgent_functions'))
end
note_feature('urgent')
for at = 3, #ARGV do
  if at - 2 <= urgent then
    redis.call('HSET', marks_key(), ARGV[at], 1)
  else
    redis.call('HDEL', marks_key(), ARGV[at])
  end
end
return 1
