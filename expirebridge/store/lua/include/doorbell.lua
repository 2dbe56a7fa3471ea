-- include names
-- include format
-- include clock
-- include state_sets
-- include grants

-- The channel that the listeners of a database subscribe to.
local function doorbell_channel(database) return prefix .. ':doorbell:' .. database end

-- Publishes a due time, or 'beat' for a heartbeat. Databases share channels, so the channel's name has the
-- database's number. If ARGV[1] is '', the number is read from `meta`, where the first listener has written it.
local function notify_listeners(message)
  local database = ARGV[1]
  if database == '' then database = redis.pcall('HGET', meta_key, 'database') end
  -- With several partitions, their number follows.
  if slot ~= '' and type(database) == 'string' then database = string.match(database, '^%d*') end
  if type(database) == 'string' then
    redis.call('PUBLISH', doorbell_channel(database), message)
  end
end

-- Makes a task pending until `due`, and sets its timer.
local function wait_until(id, record, due)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
end

-- Makes a change, gives the slots that it freed to those who wait for them, and rings the doorbell if it has made a
-- task the earliest; `move` and `write` note the `soonest`. If the fleet runs more than one code, due tasks may have
-- been left to other listeners: then only tasks that are not due yet are compared. If none of the changed tasks was
-- pending before, one look afterwards is enough, and only if one is pending now.
local function ring_after(change, none_waited)
  local reply
  if none_waited then
    reply = change()
    if uses_limits then serve_freed() end
    if soonest == math.huge then return reply end
  end
  local first
  if fleet_code and string.find(fleet_code, ' ', 1, true) then
    first = redis.call('ZRANGE', state_set('pending'), '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1,
      'WITHSCORES')[2]
  else
    first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')[2]
  end
  first = tonumber(first) or math.huge
  if not none_waited then
    reply = change()
    if uses_limits then serve_freed() end
  end
  if soonest < first or none_waited and soonest == first then
    notify_listeners(string.format('%.0f', soonest))
  end
  return reply
end
