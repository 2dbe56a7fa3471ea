-- flags: allow-oom
-- Notes that rows of the ledger have learnt what was read by `read_dirty`: the end of a pass.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the ledger, 3 the number of the pass that is to be the last one here,
--          4 the number of this pass, then ids, each with the time since when it was dirty
-- returns  1, or 0 if another pass or another ledger was here, or if something that was read is not
--          there any more, since this database lost it: then nothing was written
--
-- What changed since stays dirty.

-- include names
-- include format
-- include ledger

local nonce, number = read_binding()
if nonce ~= ARGV[2] or number ~= tonumber(ARGV[3]) then return 0 end
local unchanged = {}
for at = 5, #ARGV, 2 do
  local since = redis.call('ZSCORE', state_set('dirty'), ARGV[at])
  if not since or tonumber(since) < tonumber(ARGV[at + 1]) then return 0 end
  if tonumber(since) == tonumber(ARGV[at + 1]) then unchanged[#unchanged + 1] = ARGV[at] end
end
redis.call('HSET', ledger_key(), 'number', ARGV[4])
for _, id in ipairs(unchanged) do redis.call('ZREM', state_set('dirty'), id) end
return 1
