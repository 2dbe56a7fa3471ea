-- include names
-- include format
-- include clock
-- include hooks
-- gives soonest, ready_now, claims_next, doorbell_channel, notify_listeners, ring_if_first, run_at_end, ring_after

-- The earliest due time that this script has put into `pending`.
local soonest = math.huge
-- Tasks that are due, and that it made pending at its end; and how many due ones its caller claims without being told.
local ready_now = 0
local claims_next = 0

-- The channel that the listeners of a database subscribe to.
local function doorbell_channel(database) return prefix .. ':doorbell:' .. database end

-- Publishes a due time, or 'beat' for a heartbeat. Databases share channels, so the channel's name has the
-- database's number. If ARGV[1] is '', the number is read from `meta`, where the first listener has written it.
local function notify_listeners(message)
  local database = ARGV[1]
  if database == '' then database = redis.pcall('HGET', meta_key, 'database') end
  -- With several partitions, their number follows.
  if hash_tag ~= '' and type(database) == 'string' then database = string.match(database, '^%d*') end
  if type(database) == 'string' then
    redis.call('PUBLISH', doorbell_channel(database), message)
  end
end

-- The earliest due time in `pending`. If the fleet runs more than one code, due tasks may have been left to other
-- listeners: then only tasks that are not due yet count.
local function first_pending()
  local first
  if fleet_code and string.find(fleet_code, ' ', 1, true) then
    first = redis.call('ZRANGE', state_set('pending'), '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1,
      'WITHSCORES')[2]
  else
    first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')[2]
  end
  return tonumber(first) or math.huge
end

-- Rings the doorbell if a task that this script made pending is the earliest; none of these was pending before.
local function ring_if_first()
  if soonest < math.huge and soonest <= first_pending() then
    notify_listeners(string.format('%.0f', soonest))
  end
end

-- Lets those end their work who have some at the end of each script. True if something is left to another script.
local function run_at_end()
  local is_left = false
  for i = 1, #at_end do is_left = at_end[i]() or is_left end
  return is_left
end

-- Makes a change, gives the slots that it freed to those who wait for them, and rings the doorbell if it has made a
-- task the earliest; `move` and `write` note the `soonest`. If none of the changed tasks was pending before, one look
-- afterwards is enough, and only if one is pending now.
local function ring_after(change, none_waited)
  local first = not none_waited and first_pending()
  local reply = change()
  run_at_end()
  if none_waited then
    ring_if_first()
  elseif soonest < first then
    notify_listeners(string.format('%.0f', soonest))
  end
  return reply
end
