-- flags: allow-oom
-- Notes when the first import from a source began: a later one must not repeat tasks that ran since.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 the source, 3 nonce of this call, or '' only to look
-- returns  1 now in ms, 2 when an earlier import from there began, or 0 if there was none

-- include names
-- include format
-- include clock

local name = own_key('imports')
local noted = redis.call('HGET', name, ARGV[2])
if noted then
  local began, nonce = string.match(noted, '^(%d+) (.*)$')
  -- A resend is the first import still.
  if began and nonce ~= ARGV[3] then return { now, tonumber(began) } end
elseif ARGV[3] ~= '' then
  redis.call('HSET', name, ARGV[2], string.format('%.0f %s', now, ARGV[3]))
end
return { now, 0 }
