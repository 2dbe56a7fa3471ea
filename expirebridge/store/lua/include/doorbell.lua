-- include names
-- include format
-- include clock
-- include state_sets

-- Where the listeners of a database of this number hear of its tasks.
local function doorbell_channel(database) return prefix .. ':doorbell:' .. database end

-- Makes listeners look at a time, or beat. Databases share channels, so the channel's name has the
-- database's number. If ARGV[1] is '', `meta` has it, once a listener has been there.
local function notify_listeners(message)
  local database = ARGV[1]
  if database == '' then database = redis.pcall('HGET', meta_key, 'database') end
  -- With several partitions, their number follows.
  if slot ~= '' and type(database) == 'string' then database = string.match(database, '^%d*') end
  if type(database) == 'string' then
    redis.call('PUBLISH', doorbell_channel(database), message)
  end
end

-- Lets a task wait, with its timer.
local function wait_until(id, record, due)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
end

-- Makes a change, and rings the doorbell if a task that now waits is the earliest; `move` and `write`
-- note the `soonest`. If the fleet runs more than one code, what is due may have been left to others:
-- then only what is not due yet is earlier. If none of the tasks waited before, it is enough to look
-- afterwards, and only if one waits now.
local function ring_after(change, none_waited)
  local reply
  if none_waited then
    reply = change()
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
  if not none_waited then reply = change() end
  if soonest < first or none_waited and soonest == first then
    notify_listeners(string.format('%.0f', soonest))
  end
  return reply
end
