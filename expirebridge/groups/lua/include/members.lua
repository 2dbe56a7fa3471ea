-- include names
-- include clock
-- include format
-- include groups
-- include records
-- include state_sets
-- include hooks
-- gives MEMBER, bits_of, set_bits, count_in_group, complete_group, stop_group, note_member, give_up
-- when groups
-- on on_move 30 note_moved
-- on on_give_up 30 give_up
-- on on_succeed 30 note_succeeded
-- on kept_paused 30 awaits_group

-- The members of groups: what each of them does to the numbers of its group, and to the group's follow-up.

-- What the two bits of a number say.
local MEMBER = { NOT_MADE = 0, OPEN = 1, FAILED = 2, ENDED = 3 }

-- `number` is text, as in an id.
local function bits_of(name, number)
  local bits = redis.pcall('BITFIELD', group_key(name, '@members'), 'GET', 'u2', '#' .. number)
  return bits[1] or MEMBER.NOT_MADE
end

local function set_bits(name, number, bits)
  redis.call('BITFIELD', group_key(name, '@members'), 'SET', 'u2', '#' .. number, bits)
end

-- Changes a number of a group; nil if another client wrote no number there. An error would end the script between
-- this member and the others that it settles.
local function count_in_group(name, field, number)
  local sum = redis.pcall('HINCRBY', group_key(name), field, number)
  return type(sum) == 'number' and sum or nil
end

-- True if the task is the follow-up of a group that has not ended.
local function awaits_group(id)
  local name = string.match(id, '^([^@]+)@then$')
  local known = name and redis.pcall('HMGET', group_key(name), 'then', 'ended')
  return known and not known.err and known[1] == id and not known[2]
end

-- The follow-up, if nobody has resumed or cancelled it before.
local function paused_follow_up(id)
  local record = id and read(id, { 'left' })
  if not record or record.state ~= 'paused' then return nil end
  record.left = number_up_to(2 ^ 52, record.left)
  return record
end

local function complete_group(name)
  redis.call('HSET', group_key(name), 'ended', now)
  redis.call('ZADD', state_set('groups'), now + KEPT_GROUP, name)
  local known = redis.call('HMGET', group_key(name), 'then', 'stopped')
  local id = known[1]
  local record = not known[2] and paused_follow_up(id)
  if not record then return end
  local timer = read_timer(id, record)
  local due = type(timer) == 'number' and timer or due_of(id, record)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
end

local function stop_group(name, why)
  redis.call('HSET', group_key(name), 'stopped', now, 'closed', 1, 'cancelled_to', 0)
  redis.call('ZADD', state_set('stopping'), now, name)
  local known = redis.call('HMGET', group_key(name), 'then', 'left')
  local record = paused_follow_up(known[1])
  if record then
    redis.call('DEL', trigger_key(known[1], record))
    move(known[1], record, 'cancelled', now + KEPT_GROUP, { 'due', due_of(known[1], record), 'ended', now, 'error', why })
  end
  if known[2] == '0' then complete_group(name) end
end

-- Counts that a member has come from the state `before` into another.
local function note_member(id, before, state)
  local name, number = string.match(id, MEMBER_ID)
  local group = name and redis.pcall('HMGET', group_key(name), 'on_failed', 'closed', 'ended', 'stopped')
  if not group or group.err or not group[1] then return end
  local was = bits_of(name, number)
  -- Another client may set the key of a number that was not made, or of one that has ended and is forgotten.
  if was == MEMBER.NOT_MADE or was == MEMBER.ENDED and not FINISHED[before] then return end
  local is = FINISHED[state] and MEMBER.ENDED or MEMBER.OPEN
  if state == 'failed' and group[1] == 'wait' then
    if group[4] then state = 'cancelled' else is = MEMBER.FAILED end
  end
  set_bits(name, number, is)
  if was == MEMBER.FAILED then
    count_in_group(name, 'failed', -1)
  elseif was == MEMBER.ENDED then
    -- One that had failed, and has ended all the same, was given up.
    local counted = group[1] == 'wait' and before == 'failed' and 'cancelled' or before
    count_in_group(name, counted, -1)
  end
  if is ~= MEMBER.OPEN then count_in_group(name, state, 1) end
  if state == 'failed' then redis.call('HSET', group_key(name), 'failed_at', now) end
  local more = (was == MEMBER.ENDED and 1 or 0) - (is == MEMBER.ENDED and 1 or 0)
  local left = more ~= 0 and count_in_group(name, 'left', more)
  if state == 'failed' and group[1] == 'cancel' and not group[3] and not group[4] then
    stop_group(name, id .. ' failed')
  elseif left == 0 and group[2] and not group[3] then
    complete_group(name)
  end
end

-- Ends a failed member that its group waits for: it counts as cancelled.
local function give_up(id)
  local name, number = string.match(id, MEMBER_ID)
  if name and bits_of(name, number) == MEMBER.FAILED then note_member(id, 'failed', 'cancelled') end
end

local function note_moved(id, _, before, state)
  if FINISHED[before] or FINISHED[state] then note_member(id, before, state) end
end

local function note_succeeded(tasks)
  for _, task in ipairs(tasks) do note_member(task[1], 'running', 'succeeded') end
end
