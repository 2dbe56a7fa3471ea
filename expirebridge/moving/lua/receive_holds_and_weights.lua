-- flags: (none: refused whole when memory is full)
-- Receives the holds, weights and numbers of the database that is moved here, once for each move: what was released here
-- since then stays released. What this database has already stays as it is.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the move, then for each: 'holds', 'weights' or 'numbers', its field and its value
-- returns  1; or the error EXPIREBRIDGE_MOVE
--
-- That they have arrived is noted as the batch 0 of the move: they come before all others.

-- include names
-- include format
-- include features
-- include clock
-- include holds

local arrivals = own_key('arrivals')
if string.sub(moving or '', 1, 5) ~= 'from ' then
  return redis.error_reply('EXPIREBRIDGE_MOVE this move was ended, or turned round, by another one')
end
if redis.call('HEXISTS', arrivals, ARGV[2]) == 1 then return 1 end
uses.limits = true

-- include limits

local keys = { holds = own_key('holds'), weights = own_key('weights'), numbers = own_key('numbers') }
for at = 3, #ARGV, 3 do
  local key, field, value = keys[ARGV[at]], ARGV[at + 1], ARGV[at + 2]
  local is_a_hold = key == own_key('holds')
  local ends = is_a_hold and end_of_hold(value)
  if not (ends and ends <= now) and change_lane('HEXISTS', key, field) == 0 then
    if is_a_hold then note_feature('limits') end
    redis.call('HSET', key, field, value)
  end
end
redis.call('HSET', arrivals, ARGV[2], 0, 'at', now)
return 1
