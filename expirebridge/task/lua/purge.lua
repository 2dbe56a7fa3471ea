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
-- include changes
-- include state_sets
-- include groups
-- include doorbell
-- include format
-- include lanes

local function purge(id)
  local record = read(id, { 'ended' })
  if not record then return NOT_FOUND end
  if record.state ~= 'failed' then return FINISHED_BEFORE end
  local ended = tonumber(record.ended) or 0
  redis.call('ZADD', state_set('failed'), math.max(now, ended + LATE_EVENTS), id)
  if groups then groups.give_up(id, move) end -- its group does not wait for it
  if uses.limits then leave_lanes(id) end -- nor do those that it lets not pass
  return DONE
end

return ring_after(function()
  local reply = {}
  for at = 2, #ARGV do reply[#reply + 1] = purge(ARGV[at]) end
  return reply
end, true)
