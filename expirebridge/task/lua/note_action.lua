-- flags: allow-oom
-- Records an action of an operator for others to read: the last thousand are kept.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 who, 3 action, 4 what it was taken on, 5 what it did, 6 nonce of this
--          call
-- returns  nil

-- include names
-- include format
-- include clock

local KEPT = 1000

-- Number of latest actions among which a resend is looked for.
local NEAR = 10

local name = actions_key()
for _, noted in ipairs(redis.call('LRANGE', name, 0, NEAR - 1)) do
  if string.find(noted, ARGV[6], 1, true) then return false end
end
redis.call('LPUSH', name, cjson.encode({ now, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] }))
redis.call('LTRIM', name, 0, KEPT - 1)
return false
