-- include names
-- include clock
-- include records
-- include format
-- gives UNENDED, MOST_MEMBERS, KEPT_GROUP, MEMBER_ID, lacking_before, groups

-- A group: tasks that belong together, and a follow-up that is made due when all have ended. Its members are the tasks
-- `<group>@g<number>`; its follow-up is the task `<group>@then`, which is paused until then. The hash `group:<name>`:
--   made, ended   when it was made, and when its last member ended, in ms
--   definition    a digest of what it was made with
--   on_failed     what a failed member does: 'wait' (it has not ended: it is to be run again, unless the group is
--                 cancelled), 'run' (it has ended), or 'cancel' (the group is cancelled)
--   left          members that have not ended
--   failed_at     when a member last failed, in ms
--   succeeded, failed, cancelled   members that are in these states, or were when their records were forgotten
--   next          one more than the highest number that was given out
--   asked         so many members, from number 0 on, its maker makes: it is not closed before
--   then          the id of the follow-up, if there is one
--   closed        1 when no member is added any more
--   stopped       since when it is cancelled, in ms
--   cancelled_to  then: the number of the next member to be cancelled
-- The value `group:<name>@members` has two bits for each number. The set `groups` has each group, with the ms until which
-- it is kept once it has ended, and UNENDED before; the set `stopping`, those of which members are to be cancelled.
local UNENDED = 9007199254740991
local MOST_MEMBERS = 100000
-- Time in ms for which a group is kept once it has ended.
local KEPT_GROUP = 86400000

-- The group and the number in a member's id.
local MEMBER_ID = '^([^@]+)@g(%d+)$'

-- How many of the first `count` numbers in a byte of that value were not made.
local function lacking_in(byte, count)
  local lacking = 0
  for place = 1, count do
    if math.floor(byte / 4 ^ (4 - place)) % 4 == 0 then lacking = lacking + 1 end
  end
  return lacking
end

-- How many of the first `count` numbers of a group were not made.
local function lacking_before(name, count)
  local bytes, lacking, known = redis.call('GET', group_key(name, '@members')) or '', 0, {}
  for byte = 0, 255 do known[byte] = lacking_in(byte, 4) end
  for at = 1, math.floor(count / 4) do lacking = lacking + known[string.byte(bytes, at) or 0] end
  return lacking + lacking_in(string.byte(bytes, math.floor(count / 4) + 1) or 0, count % 4)
end

-- The functions for groups; false in a database without them, where each caller asks that first.
local groups = features and string.find(' ' .. features .. ' ', ' groups ', 1, true) and (function()
  local NOT_MADE, OPEN, FAILED, ENDED = 0, 1, 2, 3 -- what the two bits of a number say

  -- `number` is text, as in an id.
  local function bits_of(name, number)
    local bits = redis.pcall('BITFIELD', group_key(name, '@members'), 'GET', 'u2', '#' .. number)
    return bits[1] or NOT_MADE
  end

  local function set_bits(name, number, bits)
    redis.call('BITFIELD', group_key(name, '@members'), 'SET', 'u2', '#' .. number, bits)
  end

  -- Changes a number of a group; nil if another client wrote no number there. An error would end the script between
  -- this member and the others that it settles.
  local function add(name, field, number)
    local sum = redis.pcall('HINCRBY', group_key(name), field, number)
    return type(sum) == 'number' and sum or nil
  end

  -- True if the task is the follow-up of a group that has not ended.
  local function awaits(id)
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

  local function complete(name, move)
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

  local function stop(name, why, move)
    redis.call('HSET', group_key(name), 'stopped', now, 'closed', 1, 'cancelled_to', 0)
    redis.call('ZADD', state_set('stopping'), now, name)
    local known = redis.call('HMGET', group_key(name), 'then', 'left')
    local record = paused_follow_up(known[1])
    if record then
      redis.call('DEL', trigger_key(known[1], record))
      move(known[1], record, 'cancelled', now + KEPT_GROUP, { 'due', due_of(known[1], record), 'ended', now, 'error', why })
    end
    if known[2] == '0' then complete(name, move) end
  end

  -- Counts that a member has come from the state `before` into another.
  local function note(id, before, state, move)
    local name, number = string.match(id, MEMBER_ID)
    local group = name and redis.pcall('HMGET', group_key(name), 'on_failed', 'closed', 'ended', 'stopped')
    if not group or group.err or not group[1] then return end
    local was = bits_of(name, number)
    -- Another client may set the key of a number that was not made, or of one that has ended and is forgotten.
    if was == NOT_MADE or was == ENDED and not FINISHED[before] then return end
    local is = FINISHED[state] and ENDED or OPEN
    if state == 'failed' and group[1] == 'wait' then
      if group[4] then state = 'cancelled' else is = FAILED end
    end
    set_bits(name, number, is)
    if was == FAILED then
      add(name, 'failed', -1)
    elseif was == ENDED then
      -- One that had failed, and has ended all the same, was given up.
      local counted = group[1] == 'wait' and before == 'failed' and 'cancelled' or before
      add(name, counted, -1)
    end
    if is ~= OPEN then add(name, state, 1) end
    if state == 'failed' then redis.call('HSET', group_key(name), 'failed_at', now) end
    local more = (was == ENDED and 1 or 0) - (is == ENDED and 1 or 0)
    local left = more ~= 0 and add(name, 'left', more)
    if state == 'failed' and group[1] == 'cancel' and not group[3] and not group[4] then
      stop(name, id .. ' failed', move)
    elseif left == 0 and group[2] and not group[3] then
      complete(name, move)
    end
  end

  -- Ends a failed member that its group waits for: it counts as cancelled.
  local function give_up(id, move)
    local name, number = string.match(id, MEMBER_ID)
    if name and bits_of(name, number) == FAILED then note(id, 'failed', 'cancelled', move) end
  end

  return { NOT_MADE = NOT_MADE, OPEN = OPEN, FAILED = FAILED, ENDED = ENDED, bits_of = bits_of, set_bits = set_bits,
    add = add, awaits = awaits, note = note, give_up = give_up, complete = complete, stop = stop }
end)()
