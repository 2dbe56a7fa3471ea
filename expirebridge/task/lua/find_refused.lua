-- flags: no-writes
-- Finds the commands that the login may not send.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then for each command: n, and its n words
-- returns  the places of refused ones, counted from 1; nil if the server cannot be asked
--          (Redis before 7)

if not redis.acl_check_cmd then return false end

local refused, place, at = {}, 0, 2
while at <= #ARGV do
  local words = {}
  for i = at + 1, at + tonumber(ARGV[at]) do words[#words + 1] = ARGV[i] end
  place = place + 1
  if not redis.acl_check_cmd(unpack(words)) then refused[#refused + 1] = place end
  at = at + #words + 1
end
return refused
