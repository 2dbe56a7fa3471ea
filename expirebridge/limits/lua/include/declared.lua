-- include names
-- include hooks
-- on lacking 20 lacks_limits
-- on on_beat 20 tell_lacking

-- A listener declares its limits in each database, whose claims need them before there is anything else of limits. An
-- argument of claims is the fingerprint of what it declares, or ''.
local function lacks_limits() return ARGV[9] ~= '' and redis.pcall('HEXISTS', own_key('limits'), 'd ' .. ARGV[9]) ~= 1 end

-- In an argument of heartbeats it follows a space. Tasks that wait need these limits, although nothing is claimed.
local function tell_lacking(reply)
  local declaration = string.match(ARGV[5], '^%d+ (.+)$')
  if not declaration then return end
  if redis.pcall('HEXISTS', own_key('limits'), 'd ' .. declaration) ~= 1 then reply[8] = reply[8] + 2 end
end
