-- flags: allow-oom
-- Scans a part of the database and finds trigger keys without a record. It also follows timers that were edited while
-- no listener ran, and puts records that are in no state set back into theirs: nothing else would ever find them.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 cursor ('0' to begin), 3 about how many keys to scan; and to
--          put records back: 4 lease in ms, 5 ms to keep a failed task
-- returns  next cursor ('0': the scan is complete), keys that are not ours, ids that were in no state set,
--          then the names found

-- include names
-- include key_scan
-- include ring

local lease, keep_failed = tonumber(ARGV[4]), tonumber(ARGV[5])
local page = redis.call('SCAN', ARGV[2], 'COUNT', ARGV[3])
local reply = { page[1], 0, {} }

return ring_after(function()
  for _, name in ipairs(page[2]) do
    if has_hash_tag(name) then check_key(name, reply, lease, keep_failed) end
  end
  return reply
end)
