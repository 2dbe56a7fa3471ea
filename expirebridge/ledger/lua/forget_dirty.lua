-- flags: allow-oom
-- Unmarks dirty rows after the changes read by `read_dirty` were written back: the end of a batch.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of the ledger, 3 the number that the last batch here must have, 4 the
--          number of this batch, then ids, each with the time since when it was dirty, and in how many ms it is
--          to be read again: 0 if it was written
-- returns  1, or 0 if another batch or another ledger was here, or if a mark that was read is gone,
--          since this database lost it: then nothing was written
--
-- A task that changed since stays dirty.

-- include names
-- include format
-- include ledger
-- include put_off

local nonce, number = read_binding()
if nonce ~= ARGV[2] or number ~= tonumber(ARGV[3]) then return 0 end
local unchanged = {}
for at = 5, #ARGV, 3 do
  local since = redis.call('ZSCORE', state_set('dirty'), ARGV[at])
  if not since or tonumber(since) < tonumber(ARGV[at + 1]) then return 0 end
  if tonumber(since) == tonumber(ARGV[at + 1]) then unchanged[#unchanged + 1] = at end
end
redis.call('HSET', ledger_key(), 'number', ARGV[4])
for _, at in ipairs(unchanged) do
  local pause = tonumber(ARGV[at + 2])
  if pause > 0 then
    redis.call('ZADD', state_set('dirty'), string.format('%.0f', put_off_from + pause * 1000), ARGV[at])
  else
    redis.call('ZREM', state_set('dirty'), ARGV[at])
  end
end
return 1
