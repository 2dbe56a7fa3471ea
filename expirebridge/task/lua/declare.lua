-- flags: allow-oom
-- Declares the functions of a code, with the shapes of their signatures.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 fingerprint, then name and shape of each function
-- returns  1
--
-- The field `#` is the number of functions: by it a heartbeat sees whether the hash is whole.

-- include names
-- include format

-- Lua can pass some thousands of values to a function. The number is even, since values come in pairs.
local VALUES_AT_ONCE = 1000

redis.call('DEL', code_key(ARGV[2]))
redis.call('HSET', code_key(ARGV[2]), '#', (#ARGV - 2) / 2)
for at = 3, #ARGV, VALUES_AT_ONCE do
  redis.call('HSET', code_key(ARGV[2]), unpack(ARGV, at, math.min(at + VALUES_AT_ONCE - 1, #ARGV)))
end
return 1
