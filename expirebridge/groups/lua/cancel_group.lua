-- flags: allow-oom
-- Cancels a group: its follow-up, and the next of its members.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 name, 3 ms to keep a cancelled task, 4 most members to look at
-- returns  1 more are left, 0 none, -1 there is no such group, -2 it has ended

-- include names
-- include format
-- include features

-- Another client may have deleted what says that there are groups.
if not uses.groups and redis.call('EXISTS', own_key('group:' .. ARGV[2])) == 1 then note_feature('groups') end

-- include ring
-- include producer_changes
-- include cancelling
-- include groups
-- include records
-- include members

local name, keep, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local MORE, ALL, NONE, ENDED = 1, 0, -1, -2

local function cancel_some()
  local known = redis.call('HMGET', group_key(name), 'next', 'cancelled_to')
  local next, from = number_up_to(MOST_MEMBERS, known[1]) or 0, number_up_to(MOST_MEMBERS, known[2]) or 0
  local to = math.min(from + most, next)
  for number = from, to - 1 do
    local id, bits = string.format('%s@g%.0f', name, number), bits_of(name, string.format('%.0f', number))
    if bits == MEMBER.OPEN and cancel_task(id, '', keep) == NOT_FOUND then
      note_member(id, 'pending', 'cancelled') -- its record is lost
    end
    if bits == MEMBER.FAILED then give_up(id) end
  end
  redis.call('HSET', group_key(name), 'cancelled_to', to)
  if to < next then return MORE end
  redis.call('ZREM', state_set('stopping'), name)
  return ALL
end

local group = redis.pcall('HMGET', group_key(name), 'on_failed', 'stopped', 'ended')
if not bits_of or group.err or not group[1] then
  redis.call('ZREM', state_set('stopping'), name)
  redis.call('ZREM', state_set('groups'), name) -- its hash is lost
  return NONE
end
if group[3] then
  redis.call('ZREM', state_set('stopping'), name)
  return group[2] and ALL or ENDED
end
local reply = ring_after(function()
  if not group[2] then stop_group(name, 'its group was cancelled') end
  return cancel_some()
end, true)
if cancelled_running then notify_listeners('beat') end
return reply
