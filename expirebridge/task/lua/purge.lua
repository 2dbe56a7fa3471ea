-- flags: allow-oom
-- Ends the time for which failed tasks are kept: the next sweep deletes them.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then ids
-- returns  for each id: 1 done, 4 not failed, 5 not found
--
-- They stay for LATE_EVENTS after their end: late events of their keys must find the record.

-- include names
-- include clock
-- include records
-- include producer_changes
-- include format
-- include hooks
-- include ring

local function purge(id)
  local record = read(id, { 'ended' })
  if not record then return NOT_FOUND end
  if record.state ~= 'failed' then return FINISHED_BEFORE end
  local ended = tonumber(record.ended) or 0
  redis.call('ZADD', state_set('failed'), math.max(now, ended + LATE_EVENTS), id)
  for i = 1, #on_give_up do on_give_up[i](id) end
  return DONE
end

return ring_after(function()
  local reply = {}
  for at = 2, #ARGV do reply[#reply + 1] = purge(ARGV[at]) end
  return reply
end, true)
