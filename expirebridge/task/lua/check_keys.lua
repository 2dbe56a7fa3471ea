-- flags: allow-oom
-- Checks keys of this partition as `scan` does. The keys are scanned once for all partitions of a server.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 lease in ms, 3 ms to keep a failed task, then names
-- returns  '0', keys that are not ours, ids that were in no state set, then the names found

-- include names
-- include key_scan
-- include ring

local lease, keep_failed = tonumber(ARGV[2]), tonumber(ARGV[3])
local reply = { '0', 0, {} }

return ring_after(function()
  for at = 4, #ARGV do
    if has_hash_tag(ARGV[at]) then check_key(ARGV[at], reply, lease, keep_failed) end
  end
  return reply
end)
